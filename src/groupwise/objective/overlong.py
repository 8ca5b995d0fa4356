"""The soft penalty on responses that come close to the limit of new tokens."""

from __future__ import annotations

FORMULA = (
    "r_i less {penalty:g} (T_i - {start}) / {buffer}, from {start} tokens on, in all {penalty:g} at {limit}"
)


def soft_overlong(tokens: int, *, limit: int, buffer: int, penalty: float) -> float:
    """penalty (limit - buffer - tokens) / buffer within the last `buffer` tokens before the limit, 0 before them.

    Source: DAPO (Yu et al. 2025, arXiv 2503.14476), equation 13, with L_max the limit and L_cache the buffer; the paper
    has 16,384 tokens, a buffer of 4,096 behind them, and a penalty of 1.

    Edge case: a response at the limit gets the whole penalty, whether the limit cut it off or it ended there.

    Args:
        tokens: length of the response.
        limit: the most that a response may have.
        buffer: over how many tokens the penalty rises.
        penalty: its size at the limit, in units of reward.

    Returns:
        What is added to the reward, 0 or negative.
    """
    return -penalty * max(tokens - (limit - buffer), 0) / buffer
