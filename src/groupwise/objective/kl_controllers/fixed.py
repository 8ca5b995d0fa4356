"""The same coefficient throughout."""

from __future__ import annotations

FORMULA = "beta as given"


def fixed(beta: float, start: float, step: int, kl_token: float, kl_rollout: float) -> float:
    """beta = start.

    Source: DeepSeekMath (arXiv 2402.03300), section 4.2, with 0.04 throughout.

    Edge case: none; nothing measured matters.

    Args:
        beta: in force before; not looked at.
        start: `objective.kl.beta`.
        step: 0 for the first; not looked at.
        kl_token: mean KL per token of the step before, nats; not looked at.
        kl_rollout: mean KL per rollout of the step before, nats; not looked at.
    """
    return start
