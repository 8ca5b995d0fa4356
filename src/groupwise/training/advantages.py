"""From the verdicts of a group to advantages, and which of its rollouts enter the loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.config.objective import ObjectiveConfig
from groupwise.errors import TrainingError
from groupwise.objective.spread import zero_spread
from groupwise.records import Group, StopReason


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judged:
    """A group with its advantages. Arrays have shape [G]."""

    group: Group
    """The rollouts and verdicts."""
    advantages_G: NDArray[np.float64]
    """0 where there is no reward."""
    in_loss_G: NDArray[np.bool_]
    """Which rollouts enter the loss and its divisors."""
    zero_spread: bool
    """The rewards are all equal, or fewer than two are present."""


def judge(group: Group, estimate: Callable[..., Any], objective: ObjectiveConfig) -> Judged:
    """Advantages of one group, from the rewards that are present; groups never mix.

    A rollout without a reward is left out of the mean, the spread and the loss. A truncated one still counts in the
    group's mean and spread when it is masked from the loss.

    Args:
        group: scored rollouts.
        estimate: advantage estimator with its settings bound: rewards [G] to advantages [G].
        objective: what to do with zero spread and truncation.

    Raises:
        TrainingError: the estimator gave a wrong shape or a non-finite number.
    """
    rewards = [verdict.reward for verdict in group.verdicts_G]
    present_G = np.array([reward is not None for reward in rewards], dtype=np.bool_)
    rewards_K = np.array([reward for reward in rewards if reward is not None], dtype=np.float64)
    advantages_G = np.zeros(len(rewards))
    if len(rewards_K):
        advantages_K = np.asarray(estimate(rewards_K), dtype=np.float64)
        if advantages_K.shape != rewards_K.shape or not np.isfinite(advantages_K).all():
            raise TrainingError(
                f"the advantage estimator gave {advantages_K} for the rewards {rewards_K} of prompt {group.prompt.id}; "
                "it must give one finite number per reward"
            )
        advantages_G[present_G] = advantages_K
    flat = zero_spread(rewards_K)
    in_loss_G = present_G.copy()
    if objective.truncated == "mask":
        in_loss_G &= np.array([r.stop_reason is not StopReason.LENGTH for r in group.rollouts_G])
    if objective.zero_spread == "drop" and flat:
        in_loss_G[:] = False
    return Judged(group=group, advantages_G=advantages_G, in_loss_G=in_loss_G, zero_spread=flat)


def judge_all(
    groups: Sequence[Group], estimate: Callable[..., Any], objective: ObjectiveConfig
) -> list[Judged]:
    """`judge` for every group of a batch."""
    return [judge(group, estimate, objective) for group in groups]
