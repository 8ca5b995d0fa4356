"""Responses grow long or shrink, and not for the reward's sake."""

from __future__ import annotations

import math

from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.health.trend import trend
from groupwise.records import Finding, Severity


def length_inflation(
    history: History,
    facts: Facts,
    *,
    factor: float = 2.0,
    least_tokens: float = 16.0,
    first: int = 5,
    window: int = 5,
) -> list[Finding]:
    """The mean length has doubled or halved since the first steps.

    Judges by `length/mean`. With the mean over each rollout's own tokens, long wrong answers are punished less per
    token (Dr. GRPO, arXiv 2503.20783, section 3.1), so they grow. Reasoning that grows with its reward (DeepSeek-R1)
    is told as an info.

    Args:
        history: the metrics.
        facts: of the run; not used.
        factor: up or down.
        least_tokens: no finding while the longer of both is shorter, since a word more is no inflation.
        first: steps that make the start.
        window: steps averaged over.

    Edge case: no finding before `first` + `window` steps. An info where the reward surely rose since the start.
    """
    start, now = history.first("length/mean", first), history.last("length/mean", window)
    if len(history.all("length/mean")) < first + window or history.now("length/mean") is None:
        return []
    if max(start.mean, now.mean) < least_tokens or start.mean / factor < now.mean < start.mean * factor:
        return []
    longer = now.mean > start.mean
    evidence = {"length/mean": now.mean, "length of the first steps": start.mean, "factor": factor}
    apart = ("length/right_mean", "length/wrong_mean")
    (right_before, wrong_before) = (history.first(name, first).mean for name in apart)
    (right_now, wrong_now) = (history.last(name, window).mean for name in apart)
    lengths = zip(apart, (right_now, wrong_now), strict=True)
    evidence |= {name: value for name, value in lengths if math.isfinite(value)}
    divisor = "wrong answers are punished less per token when they are long (sequence_mean)"
    causes = (
        ["the reward is higher for longer responses", divisor]
        if longer
        else [
            "the reward is higher for shorter responses",
            "a reward for format is had without an answer",
        ]
    )
    if longer and wrong_now * right_before > right_now * wrong_before:  # wrong ones grew by the larger factor
        causes.reverse()
    more = (
        (
            "set objective.aggregation to token_mean or constant",
            "set objective.truncated to mask, or add the scorer length_target",
        )
        if longer
        else (
            "look whether short responses are right as often",
            "add the scorer length_target with a least length",
        )
    )
    return [
        Finding(
            check="length_inflation",
            kind="longer" if longer else "shorter",
            severity=Severity.INFO if trend(history.all("reward/mean").values).rises else Severity.WARNING,
            first_step=now.steps[0],
            last_step=history.step,
            summary=f"responses went from {start.mean:.0f} to {now.mean:.0f} tokens on average",
            evidence=evidence,
            causes=tuple(causes),
            remedies=("read some of the longest and shortest rollouts", *more),
        )
    ]
