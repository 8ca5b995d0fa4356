"""Mean over all tokens of the batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FORMULA = "(1 / sum_i T_i) sum_i sum_t"


def token_mean(tokens_N: NDArray[np.int64]) -> NDArray[np.float64]:
    """w_i = 1 / sum_j T_j: every token weighs the same, so a long rollout weighs more.

    Source: DAPO (Yu et al. 2025, arXiv 2503.14476), equation 12; TRL's loss_type "dapo".

    Edge case: no trainable token at all gives all zeros.

    Args:
        tokens_N: trainable tokens of every rollout in the optimiser batch, shape [N].

    Returns:
        Weight of one token of each rollout, shape [N]; the weights of all tokens sum to 1.
    """
    total = int(tokens_N.sum())
    return np.where(tokens_N > 0, 1.0 / max(total, 1), 0.0)
