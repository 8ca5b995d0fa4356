"""Whether each reward is above or below the mean of its group."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from groupwise.objective.spread import RELATIVE_TOLERANCE, zero_spread

FORMULA = "A_i = sign(r_i - mean(r))"


def sign(rewards_G: NDArray[np.float64]) -> NDArray[np.float64]:
    """A_i = sign(r_i - mean(r)): 1, 0 or -1.

    It is the sign of the leave-one-out advantage too, since that is G / (G - 1) times r_i - mean(r).

    Source: practice, for rewards with outliers or without a scale; no paper is known to us.

    Assumption: only which answers are better than average is to be trusted, not by how much.

    Edge case: a reward within a relative 1e-6 of the mean gives exactly 0, so that rounding decides nothing; rewards
    that are all equal give 0 throughout, and so does G = 1. They sum to 0 only where as many are above as below.

    Args:
        rewards_G: shape [G], finite.

    Returns:
        Advantages, shape [G], without unit.
    """
    rewards_G = np.asarray(rewards_G, dtype=np.float64)
    if zero_spread(rewards_G):
        return np.zeros_like(rewards_G)
    deviations_G = rewards_G - rewards_G.mean()
    nothing = RELATIVE_TOLERANCE * float(np.max(np.abs(rewards_G)))
    return np.where(np.abs(deviations_G) <= nothing, 0.0, np.sign(deviations_G))
