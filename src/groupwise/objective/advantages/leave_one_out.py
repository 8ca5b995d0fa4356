"""Each reward less the mean of the others of its group."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from groupwise.objective.spread import zero_spread

FORMULA = "A_i = r_i - (sum(r) - r_i) / (G - 1)"
IN_REWARD_UNITS = True


def leave_one_out(rewards_G: NDArray[np.float64]) -> NDArray[np.float64]:
    """A_i = r_i - mean of the other rewards, which is G / (G - 1) times r_i - mean(r).

    Source: RLOO (Kool et al. 2019, "Buy 4 REINFORCE Samples, Get a Baseline for Free!"; for language models Ahmadian
    et al. 2024, arXiv 2402.14740, section 3.3).

    Assumption: reward units mean the same in every group. The baseline does not contain the rollout's own reward, so
    that the gradient is unbiased.

    Edge case: rewards that are all equal (up to a relative 1e-6) give exactly 0; so does G = 1.

    Args:
        rewards_G: shape [G], finite.

    Returns:
        Advantages, shape [G], in units of reward, summing to 0.
    """
    rewards_G = np.asarray(rewards_G, dtype=np.float64)
    if zero_spread(rewards_G):
        return np.zeros_like(rewards_G)
    others_G = (rewards_G.sum() - rewards_G) / (len(rewards_G) - 1)
    advantages_G: NDArray[np.float64] = rewards_G - others_G
    return advantages_G
