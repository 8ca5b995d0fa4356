"""The probability ratio between the policy and the policy that the batch began with, from log-probs.

A ratio over a whole response is the same at each of its tokens, and its gradient reaches all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are clamped to +-20 before exp (e^20 = 5e8), so that no single token overflows float32."""

FORMULAS = {
    "token": "rho_t = exp(policy_t - old_t)",
    "sequence_product": "rho_t = exp(sum_t (policy_t - old_t))",
    "sequence_geometric": "rho_t = exp((1/T_i) sum_t (policy_t - old_t))",
}


def token(log_ratio_M: Tensor, rollout_M: Tensor, rollouts: int) -> Tensor:
    """log rho_t = policy_t - old_t, one per token, unchanged.

    Source: PPO (arXiv 1707.06347), equation 6, with an action being one token, as in DeepSeekMath (arXiv 2402.03300),
    equation 3.

    Args:
        log_ratio_M: policy less old log-probs per trainable token, shape [M].
        rollout_M: unused by this ratio; every ratio takes it.
        rollouts: unused by this ratio.

    Returns:
        log rho per token, shape [M], not yet clamped.
    """
    return log_ratio_M


def sequence_product(log_ratio_M: Tensor, rollout_M: Tensor, rollouts: int) -> Tensor:
    """log rho_t = sum over the response of policy - old, the same at each of its tokens.

    Source: the importance weight of a whole response (Ahmadian et al. 2024, arXiv 2402.14740, section 3.1, where the
    response is one action), taken in log space.

    Assumption: responses are short, or the policy is close to the old one: the sum wanders with the square root of the
    length, or with the length itself where tokens lean one way, and then almost every ratio is clipped.

    Args:
        log_ratio_M: policy less old log-probs per trainable token, shape [M].
        rollout_M: which rollout each token is of, 0 .. rollouts - 1, shape [M].
        rollouts: how many there are; all tokens of each are here.

    Returns:
        log rho per token, shape [M], not yet clamped.
    """
    return log_ratio_M.new_zeros(rollouts).index_add(0, rollout_M, log_ratio_M)[rollout_M]


def sequence_geometric(log_ratio_M: Tensor, rollout_M: Tensor, rollouts: int) -> Tensor:
    """log rho_t = mean over the response of policy - old, the same at each of its tokens.

    Source: GSPO (Zheng et al. 2025, arXiv 2507.18071), equation 7.

    Edge case: the ratio differs from 1 far less than a token's, so bounds are of the order of 1e-4.

    Args:
        log_ratio_M: policy less old log-probs per trainable token, shape [M].
        rollout_M: which rollout each token is of, 0 .. rollouts - 1, shape [M].
        rollouts: how many there are; all tokens of each are here.

    Returns:
        log rho per token, shape [M], not yet clamped.
    """
    tokens_N = log_ratio_M.new_zeros(rollouts).index_add(0, rollout_M, log_ratio_M.new_ones(len(rollout_M)))
    return sequence_product(log_ratio_M, rollout_M, rollouts) / tokens_N[rollout_M]


RATIOS = {
    "token": token,
    "sequence_product": sequence_product,
    "sequence_geometric": sequence_geometric,
}


def ratio(log_ratio_M: Tensor) -> tuple[Tensor, Tensor]:
    """exp(clamp(log rho, -20, 20)), and where the clamp bit. Both of shape [M]; a clamped token has no gradient."""
    clamped_M = log_ratio_M.detach().abs() > LOG_RATIO_LIMIT
    return log_ratio_M.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp(), clamped_M
