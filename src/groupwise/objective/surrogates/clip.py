"""PPO's clipped surrogate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from annotated_types import Gt, Lt

if TYPE_CHECKING:
    from torch import Tensor

FORMULA = "min(rho A, clip(rho, 1 - {low:g}, 1 + {high:g}) A)"
FORMULA_DUAL = "; for A < 0 at least {dual:g} A"


def clip(
    ratio_M: Tensor,
    advantages_M: Tensor,
    policy_logprobs_M: Tensor,
    *,
    low: Annotated[float, Gt(0), Lt(1)] = 0.2,
    high: Annotated[float, Gt(0)] = 0.2,
    dual: Annotated[float, Gt(1)] | None = None,
) -> Tensor:
    """min(rho A, clip(rho, 1 - low, 1 + high) A); with `dual` c, for A < 0 the larger of that and c A.

    Source: PPO (Schulman et al. 2017, arXiv 1707.06347), equation 7; separate bounds from DAPO (arXiv 2503.14476),
    equation 10; the dual clip from Ye et al. 2020 (arXiv 1912.09729), equation 5.

    Assumption: rho is 1 at the first update of a batch, where the gradient is that of plain policy gradient.

    Edge case: A = 0 gives exactly 0. A token outside the bounds on the side its advantage pushes to has no gradient.

    Args:
        ratio_M: rho, shape [M], with gradient.
        advantages_M: A, shape [M].
        policy_logprobs_M: unused by this surrogate; every surrogate takes it.
        low: how far below 1 the ratio may fall.
        high: how far above 1 the ratio may rise.
        dual: c, a bound on the loss of very unlikely bad tokens; None for no bound.

    Returns:
        The surrogate to be maximised, shape [M].
    """
    clipped_M = ratio_M.clamp(1.0 - low, 1.0 + high)
    surrogate_M = (ratio_M * advantages_M).minimum(clipped_M * advantages_M)
    if dual is not None:
        surrogate_M = surrogate_M.where(advantages_M >= 0, surrogate_M.maximum(dual * advantages_M))
    return surrogate_M


def outside(ratio_M: Tensor, advantages_M: Tensor, *, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Where the bounds take the gradient away: rho < 1 - low with A < 0, and rho > 1 + high with A > 0.

    Args:
        ratio_M: rho, shape [M].
        advantages_M: A, shape [M].
        low: as in `clip`.
        high: as in `clip`.

    Returns:
        Below and above, bool, shape [M] each.
    """
    return (ratio_M < 1.0 - low) & (advantages_M < 0), (ratio_M > 1.0 + high) & (advantages_M > 0)


def width(*, low: float, high: float) -> float:
    """How far rho may move from 1 before a bound bites, on the nearer side.

    Args:
        low: as in `clip`.
        high: as in `clip`.
    """
    return min(low, high)
