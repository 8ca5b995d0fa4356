"""The policy gradient under a truncated importance weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from annotated_types import Gt

if TYPE_CHECKING:
    from torch import Tensor

FORMULA = "sg(min(rho, {bound:g})) A policy_t,  sg: no gradient"


def cispo(
    ratio_M: Tensor,
    advantages_M: Tensor,
    policy_logprobs_M: Tensor,
    *,
    bound: Annotated[float, Gt(0)] = 5.0,
) -> Tensor:
    """stop_gradient(min(rho, bound)) A policy: a token outside the bound keeps its gradient, with a held weight.

    Source: MiniMax-M1 (2025, arXiv 2506.13585), equations 4 and 5. The paper writes the bound as 1 + eps_high (and has
    a lower one that it does not use); here, as in TRL, it is the bound itself.

    Assumption: tokens that change a line of reasoning are rare and soon outside a clip, which would silence them.

    Edge case: A = 0 gives 0. The value is no estimate of the objective, only its gradient is: log-probs are
    negative, so a good answer's value rises towards 0.

    Args:
        ratio_M: rho, shape [M]; its gradient is not used.
        advantages_M: A, shape [M].
        policy_logprobs_M: with gradient, shape [M].
        bound: the largest weight, absolute: 5 lets rho act up to 5.

    Returns:
        The surrogate to be maximised, shape [M].
    """
    return ratio_M.detach().clamp(max=bound) * advantages_M * policy_logprobs_M


def outside(ratio_M: Tensor, advantages_M: Tensor, *, bound: float) -> tuple[Tensor, Tensor]:
    """Where the weight is held: rho > bound with an advantage that is not 0. Nothing is below.

    Args:
        ratio_M: rho, shape [M].
        advantages_M: A, shape [M].
        bound: as in `cispo`.

    Returns:
        Below and above, bool, shape [M] each.
    """
    above_M = (ratio_M > bound) & (advantages_M != 0)
    return above_M & ~above_M, above_M


def width(*, bound: float) -> float:
    """How far rho may rise above 1 before its weight is held.

    Args:
        bound: as in `cispo`.
    """
    return bound - 1.0
