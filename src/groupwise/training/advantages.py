"""From the verdicts of a batch to advantages, and which rollouts enter the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.config.objective import ObjectiveConfig
from groupwise.errors import TrainingError
from groupwise.objective.estimator import Estimator, Evidence
from groupwise.objective.spread import zero_spread
from groupwise.records import Group, StopReason
from groupwise.records.nouns import FloatArray

PerToken = tuple[NDArray[np.float64], ...]
Values = Sequence[Sequence[NDArray[Any]]]
"""Per group and rollout one array [T]."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judged:
    """A group, and what its verdicts decide before any advantage. Arrays have shape [G]."""

    group: Group
    """The rollouts and verdicts."""
    counted_G: NDArray[np.bool_]
    """Which rollouts have a reward, so that they count in their group's mean and spread."""
    in_loss_G: NDArray[np.bool_]
    """Which rollouts enter the loss and its divisors."""
    scored_G: NDArray[np.bool_]
    """Which rollouts need log-probs: those in the loss, and with the KL in the reward all that have one."""
    zero_spread: bool
    """The rewards are all equal, or fewer than two are present."""


def judge(group: Group, objective: ObjectiveConfig) -> Judged:
    """Which rollouts of a group count, and which enter the loss.

    A rollout without a reward is left out of the mean, the spread and the loss. A truncated one still counts in the
    group's mean and spread when it is masked from the loss. Where there is a greedy baseline, its reward counts in the
    spread, and without one nothing of the group can be compared, so all of it is left out.

    Args:
        group: scored rollouts.
        objective: what to do with zero spread and truncation.
    """
    rewards = [verdict.reward for verdict in group.verdicts_G]
    counted_G = np.array([reward is not None for reward in rewards], dtype=np.bool_)
    compared = rewards
    if group.greedy is not None:
        compared = [*rewards, group.greedy.verdict.reward]
        counted_G &= group.greedy.verdict.reward is not None
    flat = zero_spread(np.array([reward for reward in compared if reward is not None], dtype=np.float64))
    in_loss_G = counted_G.copy()
    if objective.truncated == "mask":
        in_loss_G &= np.array([r.stop_reason is not StopReason.LENGTH for r in group.rollouts_G])
    if objective.zero_spread == "drop" and flat:
        in_loss_G[:] = False
    kl_in_reward = objective.kl.place == "reward" and objective.kl.beta > 0
    return Judged(
        group=group,
        counted_G=counted_G,
        in_loss_G=in_loss_G,
        scored_G=counted_G if kl_in_reward else in_loss_G,
        zero_spread=flat,
    )


def judge_all(groups: Sequence[Group], objective: ObjectiveConfig) -> list[Judged]:
    """`judge` for every group of a batch."""
    return [judge(group, objective) for group in groups]


def advantages(
    judged: Sequence[Judged],
    estimate: Estimator,
    *,
    penalties: Sequence[PerToken] | None = None,
    values: Values | None = None,
) -> list[PerToken]:
    """The advantage of every token of a batch; groups never mix unless the estimator says so.

    An estimator over rollouts sees all that have a reward, one over tokens those that enter the loss.

    Args:
        judged: the batch.
        estimate: the estimator with its settings.
        penalties: per group and rollout what the KL takes off the reward at each token [T]; None for nothing.
        values: per group and rollout what a critic expects at each token [T]; None without a critic. Only those of
            rollouts in the loss are looked at.

    Returns:
        Per group one array [T] per rollout; 0 at tokens that are not trained, and throughout what is left out.

    Raises:
        TrainingError: the estimator gave a wrong shape or a non-finite number.
    """
    members = _members(judged, estimate)
    found = [[np.zeros(len(rollout.token_ids_T)) for rollout in one.group.rollouts_G] for one in judged]
    if members:
        evidence = _evidence(judged, members, penalties, values)
        try:
            estimated = estimate(evidence)
        except ValueError as error:
            raise TrainingError(f"{error} (rewards {evidence.rewards_N})") from None
        for (g, i), advantages_T in zip(members, estimated, strict=True):
            if judged[g].in_loss_G[i]:
                found[g][i][judged[g].group.rollouts_G[i].trainable_T] = advantages_T
    return [tuple(arrays) for arrays in found]


def value_targets(
    judged: Sequence[Judged],
    estimate: Estimator,
    *,
    penalties: Sequence[PerToken] | None,
    values: Values,
) -> list[tuple[FloatArray, ...]]:
    """What the critic is to learn at every token of a batch.

    Args:
        judged: the batch.
        estimate: the estimator that the values are for.
        penalties: as in `advantages`.
        values: as in `advantages`.

    Returns:
        Per group one array [T] per rollout; NaN at tokens that are not trained, and throughout what is left out.

    Raises:
        TrainingError: the estimator's targets have a wrong shape or are not finite.
    """
    members = _members(judged, estimate)
    found = [
        [np.full(len(rollout.token_ids_T), np.nan, dtype=np.float32) for rollout in one.group.rollouts_G]
        for one in judged
    ]
    if members:
        try:
            learned = estimate.targets(_evidence(judged, members, penalties, values))
        except ValueError as error:
            raise TrainingError(str(error)) from None
        for (g, i), targets_T in zip(members, learned, strict=True):
            if judged[g].in_loss_G[i]:
                found[g][i][judged[g].group.rollouts_G[i].trainable_T] = targets_T
    return [tuple(arrays) for arrays in found]


def _members(judged: Sequence[Judged], estimate: Estimator) -> list[tuple[int, int]]:
    """(group, rollout) of all that the estimator sees."""
    return [
        (g, i)
        for g, one in enumerate(judged)
        for i in np.flatnonzero(one.in_loss_G if estimate.by_token else one.counted_G).tolist()
    ]


def _evidence(
    judged: Sequence[Judged],
    members: Sequence[tuple[int, int]],
    penalties: Sequence[PerToken] | None,
    values: Values | None,
) -> Evidence:
    """What the chosen rollouts show, as (group, rollout) pairs."""
    task_N = np.array([judged[g].group.verdicts_G[i].reward for g, i in members], dtype=np.float64)
    masks = [judged[g].group.rollouts_G[i].trainable_T for g, i in members]
    lengths_N = np.array([int(mask.sum()) for mask in masks], dtype=np.int64)
    rewards_NT = tuple(_at_the_end(reward, length) for reward, length in zip(task_N, lengths_N, strict=True))
    rewards_N = task_N
    if penalties is not None:
        off_NT = [penalties[g][i][mask] for (g, i), mask in zip(members, masks, strict=True)]
        rewards_NT = tuple(r - off for r, off in zip(rewards_NT, off_NT, strict=True))
        rewards_N = task_N - np.array([off.sum() for off in off_NT])
    return Evidence(
        rewards_N=rewards_N,
        rewards_NT=rewards_NT,
        task_rewards_N=task_N,
        groups_N=np.array([g for g, _ in members], dtype=np.int64),
        lengths_N=lengths_N,
        values_NT=None
        if values is None
        else tuple(
            values[g][i][mask].astype(np.float64) for (g, i), mask in zip(members, masks, strict=True)
        ),
        greedy_rewards_N=_greedy_rewards(judged, members),
    )


def _greedy_rewards(
    judged: Sequence[Judged], members: Sequence[tuple[int, int]]
) -> NDArray[np.float64] | None:
    """Of the greedy baseline of each member's group; None where none was sampled."""
    greedy = [judged[g].group.greedy for g, _ in members]
    if any(one is None for one in greedy):
        return None
    return np.array([one.verdict.reward for one in greedy if one is not None], dtype=np.float64)


def _at_the_end(reward: float, length: int) -> NDArray[np.float64]:
    """One reward as earned with the last trained token."""
    rewards_T = np.zeros(length)
    rewards_T[length - 1 :] = reward
    return rewards_T
