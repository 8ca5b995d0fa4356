"""Each reward less the mean of its group, divided by the spread of the whole batch."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from groupwise.objective.spread import zero_spread

FORMULA = "A_i = (r_i - mean(r)) / (batch_std + {eps:g}),  batch_std: {std}, of the batch's {spread_of}"


def batch_zscore(
    rewards_N: NDArray[np.float64],
    groups_N: NDArray[np.int64],
    *,
    spread_of: Literal["rewards", "deviations"] = "rewards",
    std: Literal["sample", "population"] = "sample",
    eps: Annotated[float, Ge(0)] = 1e-4,
) -> NDArray[np.float64]:
    """A_i = (r_i - mean of its group) / (std over the batch + eps).

    Source: REINFORCE++ with a group baseline (Hu et al. 2025, arXiv 2501.03262), section on REINFORCE++-baseline, which
    takes the std of what is left after the group's mean (`spread_of: deviations`); TRL's `scale_rewards="batch"` and
    "Part I: Tricks or Traps?" (Liu et al. 2025, arXiv 2508.08221) take that of the rewards themselves.

    Assumption: reward units mean the same in every group. Unlike the group's own, the batch's std does not weigh a
    group up whose answers nearly agree.

    Edge case: a group whose rewards are all equal (up to a relative 1e-6) gets exactly 0; so do all where the batch has
    no spread.

    Args:
        rewards_N: shape [N], finite.
        groups_N: which group each is of, shape [N].
        spread_of: what the std is over: the `rewards`, or their `deviations` from the means of their groups.
        std: `sample` divides the sum of squares by N - 1, `population` by N.
        eps: added to the std, in units of reward.

    Returns:
        Advantages, shape [N], without unit, summing to 0 in each group.
    """
    rewards_N = np.asarray(rewards_N, dtype=np.float64)
    deviations_N = np.zeros_like(rewards_N)
    for group in np.unique(groups_N):
        mine = groups_N == group
        if not zero_spread(rewards_N[mine]):
            deviations_N[mine] = rewards_N[mine] - rewards_N[mine].mean()
    if not deviations_N.any():
        return deviations_N
    spread_N = rewards_N if spread_of == "rewards" else deviations_N
    squares = float(np.sum((spread_N - spread_N.mean()) ** 2))
    divisor = len(rewards_N) - 1 if std == "sample" else len(rewards_N)
    advantages_N: NDArray[np.float64] = deviations_N / ((squares / divisor) ** 0.5 + eps)
    return advantages_N
