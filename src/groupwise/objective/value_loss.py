"""What a critic is trained by: how far its values are from their targets, held near where the batch found them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

FORMULA = "1/2 max((V - R)^2, (clip(V, V_old - {clip:g}, V_old + {clip:g}) - R)^2)"
FORMULA_UNCLIPPED = "1/2 (V - R)^2"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueTerms:
    """The loss and what it was made of."""

    loss_M: Any
    """Per token, with gradient, shape [M], in squared units of reward."""
    clipped_M: Any
    """True where the clip takes the gradient away, shape [M]."""


def value_loss(
    values_M: Tensor, old_values_M: Tensor, targets_M: Tensor, *, clip: float | None
) -> ValueTerms:
    """1/2 max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2) per token; without a clip 1/2 (V - R)^2.

    Source: the practice of OpenAI's baselines for PPO (Dhariwal et al. 2017), as in Ziegler et al. 2019 (arXiv
    1909.08593) and TRL; the factor one half is theirs. PPO's paper (arXiv 1707.06347) has no clip here.

    Assumption: c is in units of reward, so it suits rewards of the order of 1; scale it with them, or leave it out.

    Edge case: a value that has moved further than c from where the batch found it, towards its target, has no gradient;
    one that has moved away from its target keeps it.

    Args:
        values_M: V, with gradient, shape [M].
        old_values_M: the critic's values when the batch began, shape [M].
        targets_M: R, what is to be expected, shape [M].
        clip: c; None for no clip.

    Returns:
        The loss per token, and where the clip bit.
    """
    squared_M = (values_M - targets_M) ** 2
    if clip is None:
        return ValueTerms(loss_M=0.5 * squared_M, clipped_M=squared_M.detach() < 0)
    held_M = values_M.maximum(old_values_M - clip).minimum(old_values_M + clip)
    held_squared_M = (held_M - targets_M) ** 2
    moved_M = held_M.detach() != values_M.detach()
    return ValueTerms(
        loss_M=0.5 * squared_M.maximum(held_squared_M),
        clipped_M=moved_M & (held_squared_M > squared_M).detach(),
    )
