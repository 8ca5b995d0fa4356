"""Raised above an interval, lowered below it."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Gt

FORMULA = (
    "beta x {factor:g} after a step whose KL per {unit} is above {high:g} nats, / {factor:g} below {low:g}; "
    "within [{least:g}, {most:g}]"
)


def interval(
    beta: float,
    start: float,
    step: int,
    kl_token: float,
    kl_rollout: float,
    *,
    low: Annotated[float, Ge(0)] = 1.0,
    high: Annotated[float, Gt(0)] = 10.0,
    unit: Literal["token", "rollout"] = "rollout",
    factor: Annotated[float, Gt(1)] = 1.5,
    least: Annotated[float, Gt(0)] = 1e-4,
    most: Annotated[float, Gt(0)] = 1.0,
) -> float:
    """beta x factor where the KL is above `high`, beta / factor where it is below `low`, beta between.

    Source: PPO (Schulman et al. 2017, arXiv 1707.06347), section 4, which doubles and halves around 1.5 times a target;
    the usual band of 1 to 10 nats per rollout is practice.

    Edge case: a KL that was not measured (NaN) leaves beta as it is. Beta never leaves [least, most], so that it finds
    its way back.

    Args:
        beta: in force before.
        start: `objective.kl.beta`; not looked at.
        step: 0 for the first; not looked at.
        kl_token: mean KL per token of the step before, nats.
        kl_rollout: mean KL per rollout of the step before, nats.
        low: lower end of the interval, nats per `unit`.
        high: upper end of the interval, nats per `unit`.
        unit: what the interval is counted in: the mean over tokens, or the mean over rollouts of their sums.
        factor: of one adjustment.
        least: the smallest beta.
        most: the largest beta.
    """
    if not low < high:
        raise ValueError(f"low is {low:g} and high {high:g}; the interval needs low below high")
    if not least <= most:
        raise ValueError(f"least is {least:g} and most {most:g}; beta needs room between them")
    kl = kl_token if unit == "token" else kl_rollout
    if kl > high:
        return min(beta * factor, most)
    if kl < low:
        return max(beta / factor, least)
    return beta
