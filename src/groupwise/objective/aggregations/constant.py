"""Sum over tokens divided by a constant length."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

FORMULA = "(1 / (N * {length})) sum_i sum_t"


def constant(
    tokens_N: NDArray[np.int64], *, length: Annotated[int, Ge(1)] | None = None
) -> NDArray[np.float64]:
    """w_i = 1 / (N L): no rollout's length enters its own weight.

    Source: "Understanding R1-Zero-Like Training" (arXiv 2503.20783), section 3.2 and its appendix on code, where L is
    the generation budget; TRL's loss_type "dr_grpo".

    Edge case: a rollout without trainable tokens weighs 0 and does not count in N; none at all gives all zeros.

    Args:
        tokens_N: trainable tokens of every rollout in the optimiser batch, shape [N].
        length: L in tokens; `rollout.max_new_tokens` when left out.

    Returns:
        Weight of one token of each rollout, shape [N]. They sum to the mean length over L, not to 1.
    """
    if length is None:
        raise ValueError(
            "constant aggregation needs a length; the configuration fills in rollout.max_new_tokens"
        )
    counted_N = tokens_N > 0
    n = int(counted_N.sum())
    return np.where(counted_N, 1.0 / (max(n, 1) * length), 0.0)
