"""Runs made up of numbers: each metric a value for all steps, or one per step; None where a step does not have it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.records import Finding

FACTS = Facts(
    group_size=8,
    rollouts=64,
    updates_per_step=1,
    clip_width=0.2,
    lora=False,
    learning_rate=1e-6,
    max_grad_norm=1.0,
)


def lines(steps: int, metrics: dict[str, float | Sequence[float | None]]) -> list[dict[str, float]]:
    made = []
    for i in range(steps):
        line: dict[str, float] = {"step": i + 1}
        for name, values in metrics.items():
            value = values if isinstance(values, int | float) else values[i]
            if value is not None:
                line[name] = value
        made.append(line)
    return made


def history(steps: int, metrics: dict[str, float | Sequence[float | None]]) -> History:
    return History(lines(steps, metrics))


def kinds(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(finding.kind, str(finding.severity)) for finding in findings]


def ever(
    check: Callable[..., list[Finding]],
    steps: int,
    metrics: dict[str, float | Sequence[float | None]],
    facts: Facts = FACTS,
) -> list[Finding]:
    """Everything that a check says at any step of a run."""
    found: list[Finding] = []
    growing = History()
    for line in lines(steps, metrics):
        growing.add(line)
        found += check(growing, facts)
    return found


def wobble(middle: float, size: float, steps: int) -> list[float]:
    """Around a value, up and down by a size, without a trend: + - - +, which a line through it does not see."""
    signs = (1.0, -1.0, -1.0, 1.0)
    return [middle + size * signs[i % 4] for i in range(steps)]


def rising(start: float, end: float, steps: int, size: float = 0.0) -> list[float]:
    """Along a line, with a wobble."""
    line = [start + (end - start) * i / (steps - 1) for i in range(steps)]
    return [value + noise for value, noise in zip(line, wobble(0.0, size, steps), strict=True)]
