"""The probability ratio between the policy and the policy that the batch began with, from log-probs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are clamped to +-20 before exp (e^20 = 5e8), so that no single token overflows float32."""

FORMULAS = {"token": "rho_t = exp(policy_t - old_t)"}


def token(log_ratio_M: Tensor) -> Tensor:
    """log rho_t = policy_t - old_t, one per token, unchanged.

    Source: PPO (arXiv 1707.06347), equation 6, with an action being one token, as in DeepSeekMath (arXiv 2402.03300),
    equation 3.

    Args:
        log_ratio_M: policy less old log-probs per trainable token, shape [M].

    Returns:
        log rho per token, shape [M], not yet clamped.
    """
    return log_ratio_M


RATIOS = {"token": token}


def ratio(log_ratio_M: Tensor) -> tuple[Tensor, Tensor]:
    """exp(clamp(log rho, -20, 20)), and where the clamp bit. Both of shape [M]; a clamped token has no gradient."""
    clamped_M = log_ratio_M.detach().abs() > LOG_RATIO_LIMIT
    return log_ratio_M.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp(), clamped_M
