"""Rewards along a response: normalised over the whole group, then credited to the tokens before them.

DeepSeekMath's process supervision (arXiv 2402.03300, section 4.1.3) with any estimator in place of its z-score.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import ConfigError
from groupwise.objective.estimator import Estimator, Evidence, Ragged

SCALAR = frozenset({"rewards_G", "rewards_N", "task_rewards_G", "task_rewards_N", "groups_N"})
"""What an estimator may ask for if each value along a response is to stand for a reward of its own."""


def process(estimate: Estimator, evidence: Evidence, earned_NT: tuple[NDArray[np.bool_], ...]) -> Ragged:
    """A_t = sum over the normalised values earned at token t or after it.

    The estimator sees every value of the group (of the batch, if it asks for that) as if it were a rollout's reward, so
    that values are never normalised within one rollout alone. A KL penalty in the reward belongs to the value that its
    token leads up to; those behind the last value belong to it.

    Edge case: a group whose values are all equal gives exactly 0 by every estimator of the package, and so does one
    with fewer than two rollouts, where an estimator compares. A rollout without trained tokens gives an empty array;
    its reward counts in the group.

    Args:
        estimate: an estimator over rewards.
        evidence: of the batch; `rewards_NT` with the values at their tokens, penalties taken off at each.
        earned_NT: per rollout, where a value was earned, [trained tokens]; a rollout with tokens has at least one.

    Returns:
        The advantage of each trained token, shape [T] for each of N rollouts.

    Raises:
        ConfigError: the estimator asks for what single values do not have, such as lengths.
        ValueError: as `Estimator.__call__`.
    """
    wrong = next((name for name in estimate.asks if name not in SCALAR), None)
    if wrong is not None:
        raise ConfigError(
            f"the advantage {estimate.name} asks for {wrong}, which single values along a response do not have; set "
            "objective.credit to outcome, which sums them first"
        )
    places = [
        np.flatnonzero(earned_T) if len(earned_T) else np.zeros(1, dtype=np.int64) for earned_T in earned_NT
    ]
    owner_K = np.repeat(np.arange(len(places)), [len(each) for each in places])
    rewards_K, task_K = (
        np.concatenate(
            [_between(x_T, at, whole) for x_T, at, whole in zip(by_token, places, totals, strict=True)]
        )
        for by_token, totals in (
            (evidence.rewards_NT, evidence.rewards_N),
            (evidence.task_rewards_NT, evidence.task_rewards_N),
        )
    )
    groups_K = evidence.groups_N[owner_K]
    one_each = replace(
        evidence,
        rewards_N=rewards_K,
        rewards_NT=tuple(rewards_K[:, None]),
        task_rewards_N=task_K,
        task_rewards_NT=tuple(task_K[:, None]),
        groups_N=groups_K,
        lengths_N=np.ones(len(groups_K), dtype=np.int64),
    )
    values_K = np.concatenate([np.zeros(0), *estimate(one_each)])
    if estimate.compares:
        alone = [g for g in np.unique(groups_K) if len(set(owner_K[groups_K == g].tolist())) < 2]
        values_K[np.isin(groups_K, alone)] = 0.0
    found = []
    for i, earned_T in enumerate(earned_NT):
        values_T = np.zeros(len(earned_T))
        if len(earned_T):
            values_T[places[i]] = values_K[owner_K == i]
        found.append(np.cumsum(values_T[::-1])[::-1])
    return tuple(found)


def _between(rewards_T: NDArray[np.float64], places: NDArray[np.int64], whole: float) -> NDArray[np.float64]:
    """The sum of what stands after each place's predecessor up to it; what follows the last place is its own."""
    if not len(rewards_T):
        return np.array([whole])
    return np.add.reduceat(rewards_T, np.concatenate([[0], places[:-1] + 1]))
