"""Each reward less that of the greedy response to the same prompt."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FORMULA = "A_i = r_i - r(greedy)"


def greedy_baseline(
    rewards_G: NDArray[np.float64], greedy_rewards_G: NDArray[np.float64]
) -> NDArray[np.float64]:
    """A_i = r_i - r(greedy), the reward of the response that takes the most likely token throughout.

    Source: ReMax (Li et al. 2024, arXiv 2310.10505), algorithm 1 and section 4.2. The penalty of a KL in the reward is
    taken off the sampled responses alone, as in verl.

    Assumption: what the greedy response earns is near what the policy earns on average; any baseline that does not
    depend on what was sampled leaves the gradient's mean as it is.

    Edge case: G = 1 will do. Responses that earn exactly what the greedy one does have an advantage of exactly 0.

    Args:
        rewards_G: shape [G], finite.
        greedy_rewards_G: the greedy response's, once for each of the G.

    Returns:
        Advantages, shape [G], in units of reward; their sum need not be 0.
    """
    advantages_G: NDArray[np.float64] = rewards_G - greedy_rewards_G
    return advantages_G
