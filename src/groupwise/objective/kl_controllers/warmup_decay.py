"""A rise, a while at the top, a fall along a line to a target, then constant."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge

FORMULA = (
    "beta rises over {warmup_steps} steps to its start, stays for {hold_steps}, falls along a line over {decay_steps} "
    "to {target:g}"
)


def warmup_decay(
    beta: float,
    start: float,
    step: int,
    kl_token: float,
    kl_rollout: float,
    *,
    target: Annotated[float, Ge(0)] = 0.02,
    warmup_steps: Annotated[int, Ge(0)] = 0,
    hold_steps: Annotated[int, Ge(0)] = 0,
    decay_steps: Annotated[int, Ge(1)] = 1000,
) -> float:
    """start (s + 1) / warmup_steps while s < warmup_steps; start for hold_steps; a line to target over decay_steps.

    Source: practice: a leash of 0.05 to 0.1 while the policy finds its way, falling to 0.02 over 1,000 steps.

    Edge case: without a warm-up the first step already has `start`; after the fall beta stays at `target`.

    Args:
        beta: in force before; not looked at.
        start: `objective.kl.beta`, the highest value.
        step: s, 0 for the first.
        kl_token: mean KL per token of the step before, nats; not looked at.
        kl_rollout: mean KL per rollout of the step before, nats; not looked at.
        target: where the fall ends.
        warmup_steps: steps of the rise.
        hold_steps: steps at the top.
        decay_steps: steps of the fall.
    """
    if step < warmup_steps:
        return start * (step + 1) / warmup_steps
    done = min(max(step - warmup_steps - hold_steps, 0) / decay_steps, 1.0)
    return start + (target - start) * done
