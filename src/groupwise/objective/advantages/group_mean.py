"""Each reward less the mean of its group."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from groupwise.objective.spread import zero_spread

FORMULA = "A_i = r_i - mean(r)"
IN_REWARD_UNITS = True


def group_mean(rewards_G: NDArray[np.float64]) -> NDArray[np.float64]:
    """A_i = r_i - mean(r).

    Source: "Understanding R1-Zero-Like Training" (Liu et al. 2025, arXiv 2503.20783), section 3.2, which drops the
    division by the std since it weighs easy and hard questions up.

    Assumption: reward units mean the same in every group, so that a wider spread deserves a larger step.

    Edge case: rewards that are all equal (up to a relative 1e-6) give exactly 0; so does G = 1.

    Args:
        rewards_G: shape [G], finite.

    Returns:
        Advantages, shape [G], in units of reward, summing to 0.
    """
    rewards_G = np.asarray(rewards_G, dtype=np.float64)
    if zero_spread(rewards_G):
        return np.zeros_like(rewards_G)
    advantages_G: NDArray[np.float64] = rewards_G - rewards_G.mean()
    return advantages_G
