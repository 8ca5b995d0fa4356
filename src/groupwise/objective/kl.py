"""Estimators of KL(policy || reference) from the log-probs of tokens the policy drew, and their caps.

With d = reference - policy per token (Schulman 2020, "Approximating KL Divergence").

| | as the value of KL(policy || reference) | as a loss, one token, differentiated on-policy |
|---|---|---|
| k1 | unbiased, may be negative | expected gradient 0 |
| k2 | biased | gradient of KL(policy || reference) |
| k3 | unbiased, never negative | gradient of KL(reference || policy) |
| k3_ratio | unbiased under the old policy | gradient of KL(policy || reference) |

Over whole responses these gradients hold at each visited prefix; that a token also decides which prefixes follow is
left out. k1's expected gradient stays 0 over responses only where the divisor does not depend on their sampled length
(`constant`, `sequence_sum`); with `sequence_mean` and `token_mean` a length-biased remainder is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

FORMULAS = {
    "k1": "-d,  d = reference_t - policy_t",
    "k2": "d^2 / 2,  d = reference_t - policy_t",
    "k3": "exp(d) - d - 1,  d = reference_t - policy_t",
    "k3_ratio": "rho_t (exp(d) - d - 1),  d = reference_t - policy_t",
}

DIFFERENCE_LIMIT = 20.0
"""d is held below 20 before exp, which would overflow float32 from 88 on. Below there is nothing to fear: where the
policy likes what the reference all but forbids, d is far under 0, exp(d) vanishes, and the pull back must stay."""


def k1(policy_logprobs_M: Tensor, reference_logprobs_M: Tensor, ratio_M: Tensor) -> Tensor:
    """-d = policy - reference, with d = reference - policy.

    Source: Schulman 2020, estimator k1.

    Unbiased for the value of KL(policy || reference), negative for some tokens. In the reward it is the usual choice;
    as a loss, differentiated on-policy, its expected gradient is 0, so that it does not pull at all.

    Edge case: equal log-probs give exactly 0.

    Args:
        policy_logprobs_M: shape [M], nats.
        reference_logprobs_M: shape [M], nats.
        ratio_M: unused by this estimator; every estimator takes it.

    Returns:
        The estimate per token, shape [M], nats.
    """
    return policy_logprobs_M - reference_logprobs_M


def k2(policy_logprobs_M: Tensor, reference_logprobs_M: Tensor, ratio_M: Tensor) -> Tensor:
    """d^2 / 2, with d = reference - policy.

    Source: Schulman 2020, estimator k2.

    Biased as a value, with little variance. As a loss, differentiated on-policy, its expected gradient for one token is
    that of KL(policy || reference).

    Edge case: equal log-probs give exactly 0.

    Args:
        policy_logprobs_M: shape [M], nats.
        reference_logprobs_M: shape [M], nats.
        ratio_M: unused by this estimator; every estimator takes it.

    Returns:
        The estimate per token, shape [M], nats squared, taken for nats.
    """
    return (reference_logprobs_M - policy_logprobs_M) ** 2 / 2


def k3(policy_logprobs_M: Tensor, reference_logprobs_M: Tensor, ratio_M: Tensor) -> Tensor:
    """exp(d) - d - 1, with d = reference - policy.

    Source: Schulman 2020, estimator k3; DeepSeekMath (arXiv 2402.03300), equation 4.

    Unbiased for the value of KL(policy || reference) and never negative. As a loss, differentiated on-policy, its
    expected gradient for one token is that of KL(reference || policy), the other direction.

    Edge case: equal log-probs give exactly 0. From d = 20 on, where a token was drawn that the policy hardly ever
    draws, the value stays at that of 20 and has no gradient.

    Args:
        policy_logprobs_M: shape [M], nats.
        reference_logprobs_M: shape [M], nats.
        ratio_M: unused by this estimator; every estimator takes it.

    Returns:
        The estimate per token, shape [M], nats.
    """
    difference_M = (reference_logprobs_M - policy_logprobs_M).clamp(max=DIFFERENCE_LIMIT)
    return difference_M.expm1() - difference_M


def k3_ratio(policy_logprobs_M: Tensor, reference_logprobs_M: Tensor, ratio_M: Tensor) -> Tensor:
    """rho (exp(d) - d - 1): k3 of tokens that the old policy drew, weighted as the policy draws them.

    Source: DeepSeek-V3.2 (2025, arXiv 2512.02556), the unbiased KL estimate of its section on scaling GRPO; TRL's
    `use_bias_correction_kl`.

    Unbiased for the value under the policy however far it has moved from the old one, and, since the ratio is
    differentiated too, with the gradient of KL(policy || reference) for one token.

    Edge case: as `k3`; a ratio over the whole response weighs its tokens alike.

    Args:
        policy_logprobs_M: shape [M], nats.
        reference_logprobs_M: shape [M], nats.
        ratio_M: rho, with gradient, shape [M].

    Returns:
        The estimate per token, shape [M], nats.
    """
    return ratio_M * k3(policy_logprobs_M, reference_logprobs_M, ratio_M)


KL_ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3, "k3_ratio": k3_ratio}


def capped(
    kl_M: Tensor, rollout_M: Tensor, rollouts: int, *, token: float | None, rollout: float | None
) -> tuple[Tensor, Tensor]:
    """The estimates with each token held at `token`, then each rollout's sum at `rollout`, and where a cap bit.

    A token above its cap has the cap's value. The tokens of a rollout above its cap are scaled to sum to it. What is
    held has no gradient: a cap does not pull the policy back from where it bites, but lets go of it there.

    Args:
        kl_M: estimates per token, shape [M], nats.
        rollout_M: which rollout each token is of, 0 .. rollouts - 1, shape [M].
        rollouts: how many there are; all tokens of each are here.
        token: the most for one token, nats; None for no cap.
        rollout: the most for the sum over a rollout, nats; None for no cap.

    Returns:
        The capped estimates, and True where one of the caps bit, shape [M] each.
    """
    limit = float("inf") if token is None else token
    held_M = kl_M.detach() > limit
    kl_M = kl_M.clamp(max=limit)
    if rollout is not None:
        total_N = kl_M.detach().new_zeros(rollouts).index_add(0, rollout_M, kl_M.detach())
        over_M = (total_N > rollout)[rollout_M]
        held_M = held_M | over_M
        kl_M = kl_M.where(~over_M, kl_M.detach() * rollout / total_N[rollout_M])
    return kl_M, held_M
