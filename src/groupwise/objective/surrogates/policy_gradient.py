"""Plain policy gradient, without any bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

FORMULA = "{weight} A,  logprob = policy_t, ratio = rho"


def policy_gradient(
    ratio_M: Tensor,
    advantages_M: Tensor,
    policy_logprobs_M: Tensor,
    *,
    weight: Literal["logprob", "ratio"] = "logprob",
) -> Tensor:
    """A policy, or rho A: the same gradient at the first update of a batch.

    Source: REINFORCE (Williams 1992), with `logprob`; with `ratio` the importance-weighted objective that TRPO
    (Schulman et al. 2015, arXiv 1502.05477), equation 14, starts from.

    Assumption: one update per batch. After it `logprob` takes no account of who drew the tokens, and `ratio` does, with
    a variance that nothing bounds.

    Edge case: A = 0 gives exactly 0.

    Args:
        ratio_M: rho, with gradient, shape [M].
        advantages_M: A, shape [M].
        policy_logprobs_M: with gradient, shape [M].
        weight: `logprob` multiplies A with the log-probability, `ratio` with rho.

    Returns:
        The surrogate to be maximised, shape [M].
    """
    return (policy_logprobs_M if weight == "logprob" else ratio_M) * advantages_M
