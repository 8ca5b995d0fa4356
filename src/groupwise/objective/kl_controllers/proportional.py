"""Steered towards a target KL, in proportion to the miss."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Gt, Le

FORMULA = (
    "beta x (1 + {gain:g} e) after each step,  e = (KL per {unit} / {target:g} - 1) held within +-{limit:g}"
)


def proportional(
    beta: float,
    start: float,
    step: int,
    kl_token: float,
    kl_rollout: float,
    *,
    target: Annotated[float, Gt(0)] = 6.0,
    unit: Literal["token", "rollout"] = "rollout",
    gain: Annotated[float, Gt(0), Le(1)] = 0.1,
    limit: Annotated[float, Gt(0), Le(1)] = 0.2,
) -> float:
    """beta (1 + gain e), with e = KL / target - 1 held within +-limit.

    Source: "Fine-Tuning Language Models from Human Preferences" (Ziegler et al. 2019, arXiv 1909.08593), section 2.2,
    with gain 0.1, limit 0.2 and a target of 6 nats per rollout.

    Edge case: a KL that was not measured (NaN) leaves beta as it is.

    Args:
        beta: in force before.
        start: `objective.kl.beta`; not looked at.
        step: 0 for the first; not looked at.
        kl_token: mean KL per token of the step before, nats.
        kl_rollout: mean KL per rollout of the step before, nats.
        target: nats per `unit`.
        unit: what the target is counted in: the mean over tokens, or the mean over rollouts of their sums.
        gain: how strongly a miss acts.
        limit: the largest miss that counts.
    """
    kl = kl_token if unit == "token" else kl_rollout
    if kl != kl:
        return beta
    miss = min(max(kl / target - 1, -limit), limit)
    return beta * (1 + gain * miss)
