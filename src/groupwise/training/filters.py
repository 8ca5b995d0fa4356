"""Which rollouts are left out of the loss by proxies: cheap signs of quality, looked at before the update."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from groupwise.config.objective import FilterConfig
from groupwise.health.metric import Mean, Metric
from groupwise.records import Group, Rollout, Verdict
from groupwise.records.nouns import BoolArray


def faults(rollout: Rollout, verdict: Verdict, chosen: FilterConfig) -> tuple[str, ...]:
    """By which proxies a rollout is left out: `length`, `format` or `reward`, or several; none where it stays.

    A reward that is absent is no reason.
    """
    tokens = len(rollout.token_ids_T)
    reward = verdict.reward if chosen.reward is None else verdict.parts.get(chosen.reward)
    found = (
        ("length", _outside(tokens, chosen.min_tokens, chosen.max_tokens)),
        ("format", chosen.pattern is not None and re.search(chosen.pattern, rollout.text, re.DOTALL) is None),
        ("reward", reward is not None and _outside(reward, chosen.min_reward, chosen.max_reward)),
    )
    return tuple(name for name, wrong in found if wrong)


def kept(group: Group, chosen: FilterConfig) -> BoolArray:
    """Which rollouts of a group stay, shape [G]."""
    pairs = zip(group.rollouts_G, group.verdicts_G, strict=True)
    return np.array([not faults(rollout, verdict, chosen) for rollout, verdict in pairs], dtype=np.bool_)


def of_filter(groups: Sequence[Group], chosen: FilterConfig | None) -> dict[str, Metric]:
    """What the filter leaves out of a batch; nothing without one."""
    if chosen is None:
        return {}
    found = [
        faults(rollout, verdict, chosen)
        for group in groups
        for rollout, verdict in zip(group.rollouts_G, group.verdicts_G, strict=True)
    ]
    return {
        "filter/left_out_fraction": Mean.of([float(bool(each)) for each in found]),
        "filter/length_fraction": Mean.of([float("length" in each) for each in found]),
        "filter/format_fraction": Mean.of([float("format" in each) for each in found]),
        "filter/reward_fraction": Mean.of([float("reward" in each) for each in found]),
    }


def _outside(value: float, low: float | None, high: float | None) -> bool:
    return (low is not None and value < low - 1e-9) or (high is not None and value > high + 1e-9)
