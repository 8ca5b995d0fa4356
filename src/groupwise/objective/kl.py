"""Estimators of KL(policy || reference) from the log-probs of tokens the policy drew.

With d = reference - policy per token (Schulman 2020, "Approximating KL Divergence").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

FORMULAS = {"k3": "exp(d) - d - 1,  d = reference_t - policy_t"}

DIFFERENCE_LIMIT = 20.0
"""d is held below 20 before exp, which would overflow float32 from 88 on. Below there is nothing to fear: where the
policy likes what the reference all but forbids, d is far under 0, exp(d) vanishes, and the pull back must stay."""


def k3(policy_logprobs_M: Tensor, reference_logprobs_M: Tensor) -> Tensor:
    """exp(d) - d - 1, with d = reference - policy.

    Source: Schulman 2020, estimator k3; DeepSeekMath (arXiv 2402.03300), equation 4.

    Unbiased for the value of KL(policy || reference) and never negative. As a loss, differentiated on-policy, its
    expected gradient for one token is that of KL(reference || policy), the other direction.

    Edge case: equal log-probs give exactly 0. From d = 20 on, where a token was drawn that the policy hardly ever
    draws, the value stays at that of 20 and has no gradient.

    Args:
        policy_logprobs_M: shape [M], nats.
        reference_logprobs_M: shape [M], nats.

    Returns:
        The estimate per token, shape [M], nats.
    """
    difference_M = (reference_logprobs_M - policy_logprobs_M).clamp(max=DIFFERENCE_LIMIT)
    return difference_M.expm1() - difference_M


KL_ESTIMATORS = {"k3": k3}
