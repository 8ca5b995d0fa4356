"""Mean over each rollout's tokens, then over rollouts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FORMULA = "(1/N) sum_i (1/T_i) sum_t"


def sequence_mean(tokens_N: NDArray[np.int64]) -> NDArray[np.float64]:
    """w_i = 1 / (N T_i): every rollout weighs the same, so a token of a long one weighs less.

    Source: DeepSeekMath (arXiv 2402.03300), equation 3; TRL's loss_type "grpo".

    Edge case: a rollout without trainable tokens weighs 0 and does not count in N; none at all gives all zeros.

    Args:
        tokens_N: trainable tokens of every rollout in the optimiser batch, shape [N].

    Returns:
        Weight of one token of each rollout, shape [N]; the weights of all tokens sum to 1.
    """
    counted_N = tokens_N > 0
    n = int(counted_N.sum())
    return np.where(counted_N, 1.0 / (max(n, 1) * np.maximum(tokens_N, 1)), 0.0)
