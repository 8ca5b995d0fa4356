"""The place of each reward within its group."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Gt
from numpy.typing import NDArray

from groupwise.objective.spread import RELATIVE_TOLERANCE, zero_spread

FORMULA = "A_i = rank(r)_i / (G - 1) - 0.5,  rank: from 0, equal rewards share the mean of their ranks"
FORMULA_ZSCORE_ABOVE = (
    "; once the population std of r is above {zscore_above:g}: (r_i - mean(r)) / std(r), with the sample std"
)


def rank(
    rewards_G: NDArray[np.float64], *, zscore_above: Annotated[float, Gt(0)] | None = None
) -> NDArray[np.float64]:
    """A_i = rank_i / (G - 1) - 1/2: the lowest reward has -0.5, the highest 0.5, equal ones the mean of their places.

    Their mean is 0 as it is, since the places of G rollouts always sum to G (G - 1) / 2.

    Source: practice, for rewards whose differences mean little, such as those of reward models early in training; rank
    statistics with average ranks are Wilcoxon's (1945).

    Assumption: the order of rewards is to be trusted and their distances are not. `zscore_above` hands over to the
    z-score group by group, where the spread has opened so far that distances say something.

    Edge case: rewards closer than a relative 1e-6 are equal; if all are, they give exactly 0, and so does G = 1.

    Args:
        rewards_G: shape [G], finite.
        zscore_above: population std of a group, in units of reward, above which it is z-scored instead; None: never.

    Returns:
        Advantages, shape [G], without unit, summing to 0.
    """
    rewards_G = np.asarray(rewards_G, dtype=np.float64)
    if zero_spread(rewards_G):
        return np.zeros_like(rewards_G)
    G = len(rewards_G)
    deviations_G = rewards_G - rewards_G.mean()
    squares = float(np.sum(deviations_G**2))
    if zscore_above is not None and (squares / G) ** 0.5 > zscore_above:
        scored_G: NDArray[np.float64] = deviations_G / (squares / (G - 1)) ** 0.5
        return scored_G
    order = np.argsort(rewards_G, kind="stable")
    gaps = np.diff(rewards_G[order])
    starts_G = np.concatenate([[True], gaps > RELATIVE_TOLERANCE * float(np.max(np.abs(rewards_G)))])
    ties_G = np.cumsum(starts_G)
    places = np.bincount(ties_G, weights=np.arange(G)) / np.maximum(np.bincount(ties_G), 1)
    advantages_G = np.zeros(G)
    advantages_G[order] = places[ties_G] / (G - 1) - 0.5
    return advantages_G
