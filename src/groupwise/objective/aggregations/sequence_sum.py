"""Sum over each rollout's tokens, mean over rollouts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FORMULA = "(1/N) sum_i sum_t"


def sequence_sum(tokens_N: NDArray[np.int64]) -> NDArray[np.float64]:
    """w_i = 1 / N: the policy gradient of the whole response's log-probability, as REINFORCE has it.

    Source: REINFORCE (Williams 1992); "Back to Basics" (Ahmadian et al. 2024, arXiv 2402.14740), equation 6.

    Assumption: the length of a response is part of the action, so its tokens' log-probs add up.

    Edge case: a rollout without trainable tokens weighs 0 and does not count in N; none at all gives all zeros.

    Args:
        tokens_N: trainable tokens of every rollout in the optimiser batch, shape [N].

    Returns:
        Weight of one token of each rollout, shape [N]. They sum to the mean length.
    """
    counted_N = tokens_N > 0
    n = int(counted_N.sum())
    return np.where(counted_N, 1.0 / max(n, 1), 0.0)
