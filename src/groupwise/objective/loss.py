"""The loss of one micro-batch: a weighted sum over its trainable tokens.

The weights come from an aggregation over the whole optimiser batch, so the losses (and gradients) of micro-batches
simply add up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from groupwise.objective.kl import capped
from groupwise.objective.ratios import ratio

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What to compute, with every setting bound."""

    log_ratio: Callable[[Tensor, Tensor, int], Tensor]
    """From `objective.ratios`: policy - old, each token's rollout, their number to log rho per token."""
    surrogate: Callable[[Tensor, Tensor, Tensor], Tensor]
    """From `objective.surrogates`: ratio, advantages, policy log-probs to a value per token, to be maximised."""
    kl: Callable[[Tensor, Tensor, Tensor], Tensor]
    """From `objective.kl`: policy and reference log-probs and the ratio to an estimate per token."""
    beta: float
    """Weight of the KL in the loss."""
    kl_cap_token: float | None = None
    """The most KL that one token adds, nats; None for no cap."""
    kl_cap_rollout: float | None = None
    """The most KL that the tokens of a rollout add together, nats; None for no cap."""
    entropy_bonus: float
    """Weight of the entropy, which is subtracted from the loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTerms:
    """The loss and what it was made of. Everything but `loss` is detached, shape [M]."""

    loss: Any
    """Scalar with gradient: this micro-batch's share of the batch's loss."""
    surrogate_M: Any
    """The surrogate, to be maximised."""
    ratio_M: Any
    """The probability ratio after the clamp."""
    clamped_M: Any
    """True where the log-ratio was clamped."""
    log_ratio_M: Any
    """log rho before the clamp."""
    kl_M: Any
    """The KL estimate in nats before any cap; None without a reference."""
    kl_capped_M: Any
    """True where a cap bit; None without a reference."""


def policy_loss(
    objective: Objective,
    *,
    policy_logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    weights_M: Tensor,
    rollout_M: Tensor,
    rollouts: int,
    correction_M: Tensor | None = None,
    reference_logprobs_M: Tensor | None = None,
    entropy_M: Tensor | None = None,
) -> TokenTerms:
    """sum_t w_t (-c_t S_t + beta KL_t - bonus H_t) over the trainable tokens of a micro-batch.

    Args:
        objective: the choices.
        policy_logprobs_M: log-probs under the policy, with gradient, shape [M], nats.
        old_logprobs_M: log-probs under the policy that the batch began with, shape [M], nats.
        advantages_M: each token's advantage, shape [M].
        weights_M: each token's weight in the whole optimiser batch, shape [M].
        rollout_M: which rollout each token is of, 0 .. rollouts - 1, shape [M]. A rollout is never split.
        rollouts: how many there are.
        correction_M: truncated importance weight from sampler to old policy, shape [M]; None for 1 everywhere.
        reference_logprobs_M: log-probs under the reference, shape [M]; None when there is none.
        entropy_M: entropy of the policy at each token, with gradient, shape [M]; needed for a bonus.

    Returns:
        The loss and its parts. With M = 0 the loss is 0 and carries no gradient.

    Raises:
        ValueError: beta is not 0 and there is no reference to measure from, or a bonus and no entropy.
    """
    if objective.beta != 0 and reference_logprobs_M is None:
        raise ValueError(f"beta is {objective.beta:g}, but there are no log-probs of a reference")
    if objective.entropy_bonus != 0 and entropy_M is None:
        raise ValueError("an entropy bonus needs the entropy of each token")
    log_ratio_M = objective.log_ratio(policy_logprobs_M - old_logprobs_M, rollout_M, rollouts)
    ratio_M, clamped_M = ratio(log_ratio_M)
    surrogate_M = objective.surrogate(ratio_M, advantages_M, policy_logprobs_M)
    per_token_M = -surrogate_M if correction_M is None else -surrogate_M * correction_M
    kl_M = kl_capped_M = None
    if reference_logprobs_M is not None:
        kl_M = objective.kl(policy_logprobs_M, reference_logprobs_M, ratio_M)
        leash_M, kl_capped_M = capped(
            kl_M, rollout_M, rollouts, token=objective.kl_cap_token, rollout=objective.kl_cap_rollout
        )
        if objective.beta != 0:
            per_token_M = per_token_M + objective.beta * leash_M
    if objective.entropy_bonus != 0 and entropy_M is not None:
        per_token_M = per_token_M - objective.entropy_bonus * entropy_M
    return TokenTerms(
        loss=(weights_M * per_token_M).sum(),
        surrogate_M=surrogate_M.detach(),
        ratio_M=ratio_M.detach(),
        clamped_M=clamped_M,
        log_ratio_M=log_ratio_M.detach(),
        kl_M=None if kl_M is None else kl_M.detach(),
        kl_capped_M=kl_capped_M,
    )


def sampler_correction(old_logprobs_M: Tensor, sampler_logprobs_M: Tensor, *, cap: float) -> Tensor:
    """min(exp(old - sampler), cap) per token: makes tokens drawn by a differing sampler count as the policy's.

    Source: truncated importance sampling (Ionides 2008; Yao et al. 2025, "Your efficient RL framework secretly brings
    you off-policy training data").

    Args:
        old_logprobs_M: of the trainer's policy at the start of the batch, shape [M], nats.
        sampler_logprobs_M: of the distribution really drawn from, shape [M], nats.
        cap: the largest weight.

    Returns:
        Weights, shape [M], no gradient.
    """
    return (old_logprobs_M - sampler_logprobs_M).detach().clamp(max=20.0).exp().clamp(max=cap)
