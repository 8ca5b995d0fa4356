"""Any estimator of a group, among its rollouts of like length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from annotated_types import Gt
from numpy.typing import NDArray

from groupwise import registry
from groupwise.errors import ConfigError
from groupwise.objective.estimator import Estimator
from groupwise.objective.spread import zero_spread

FORMULA = (
    "A_i = {of}, over those of the group whose length is in the same bucket; lengths of a factor of {factor:g} share "
    "one, and a bucket of one falls back to the group"
)


def length_buckets(
    rewards_G: NDArray[np.float64],
    lengths_G: NDArray[np.int64],
    task_rewards_G: NDArray[np.float64],
    *,
    of: str | Mapping[str, Any] = "group_zscore",
    factor: Annotated[float, Gt(1)] = 2.0,
) -> NDArray[np.float64]:
    """A_i of the estimator `of`, computed among the rollouts whose lengths lie in the same bucket.

    Bucket k holds the lengths from factor^k up to factor^(k+1): with a factor of 2 these are 1, 2 to 3, 4 to 7, ...

    Source: practice, against rewards that grow or fall with length; no paper is known to us.

    Assumption: an answer is to be compared with answers of its own length. What length itself is worth is then no
    longer learned.

    Edge case: a rollout alone in its bucket gets what the estimator gives it in the whole group, so advantages need not
    sum to 0. Rewards of the group that are all equal give exactly 0, and so do those of a bucket: with a KL penalty in
    the reward, its task rewards, unless `of` keeps the unit of rewards.

    Args:
        rewards_G: shape [G], finite.
        lengths_G: trained tokens of each, shape [G].
        task_rewards_G: the rewards without any penalty, shape [G]; the same where there is none.
        of: name of an estimator of rewards in a group, or a mapping with its `name` and settings.
        factor: of the lengths that share a bucket.

    Returns:
        Advantages, shape [G], in the unit of the estimator's.

    Raises:
        ValueError: `of` is no estimator, or one that needs more than the rewards of a group.
    """
    rewards_G = np.asarray(rewards_G, dtype=np.float64)
    estimate = _estimator(of)
    if zero_spread(rewards_G):
        return np.zeros_like(rewards_G)
    task_rewards_G = np.asarray(task_rewards_G, dtype=np.float64)
    # A bucket whose tasks tie differs by the penalty alone: scaled to unit spread, that would be noise.
    penalised = not estimate.keeps_unit and not np.array_equal(task_rewards_G, rewards_G)
    advantages_G = np.array(estimate.function(rewards_G), dtype=np.float64)
    # The last term keeps whole powers of the factor, whose logarithm is rounded, in the bucket that they begin.
    buckets_G = np.floor(np.log(np.maximum(lengths_G, 1)) / np.log(factor) + 1e-9)
    for bucket in np.unique(buckets_G):
        mine = buckets_G == bucket
        if mine.sum() > 1:
            tied = penalised and zero_spread(task_rewards_G[mine])
            advantages_G[mine] = 0.0 if tied else estimate.function(rewards_G[mine])
    return advantages_G


def _estimator(of: str | Mapping[str, Any]) -> Estimator:
    settings = {"name": of} if isinstance(of, str) else dict(of)
    name = str(settings.pop("name", ""))
    try:
        estimator = Estimator(registry.find("groupwise.objective.advantages", name), settings)
    except ConfigError as error:
        raise ValueError(f"of: {error}") from None
    if estimator.asks != ("rewards_G",):
        raise ValueError(f"of is {name}, which asks for more than the rewards of one group")
    return estimator
