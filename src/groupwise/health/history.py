"""The metrics of a run so far, by name, so that a check reads a window of one without going through the lines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

ROLLED_BACK = "health/rolled_back_to"
"""In the metrics of a step after which the weights went back: the step whose weights they are."""


@dataclass(frozen=True, slots=True)
class Series:
    """One metric over the steps that have it; finite values only."""

    steps: tuple[int, ...]
    """In order."""
    values: tuple[float, ...]
    """One per step."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        """Mean of the values; NaN of none."""
        return float(np.mean(self.values)) if self.values else math.nan

    @property
    def median(self) -> float:
        """Median of the values; NaN of none."""
        return float(np.median(self.values)) if self.values else math.nan

    def since(self, step: int) -> Series:
        """The part from a step on."""
        start = next((i for i, s in enumerate(self.steps) if s >= step), len(self.steps))
        return Series(self.steps[start:], self.values[start:])


class History:
    """Grows by a line of metrics at a time.

    Attributes:
        line: the metrics of the latest step as they are, NaN and infinity included.
        step: the latest.
        back: the step that was gone back to after the latest; None mostly. What came between is forgotten as soon as
            the next line is added.
    """

    def __init__(self, lines: Iterable[Mapping[str, float]] = ()) -> None:
        """Start with some lines of metrics.jsonl, each with its `step`."""
        self.line: Mapping[str, float] = {}
        self.step = 0
        self.back: int | None = None
        self._steps: dict[str, list[int]] = {}
        self._values: dict[str, list[float]] = {}
        for line in lines:
            self.add(line)

    def add(self, line: Mapping[str, float]) -> None:
        """Take the metrics of one more step."""
        if self.back is not None:
            self._forget_after(self.back)
        back = line.get(ROLLED_BACK)
        self.back = None if back is None else int(back)
        self.line, self.step = line, int(line["step"])
        for name, value in line.items():
            if name != "step" and math.isfinite(value):
                self._steps.setdefault(name, []).append(self.step)
                self._values.setdefault(name, []).append(value)

    def _forget_after(self, step: int) -> None:
        for name, steps in self._steps.items():
            kept = sum(each <= step for each in steps)
            del steps[kept:], self._values[name][kept:]

    def all(self, name: str) -> Series:
        """A metric over all steps that have it."""
        return self.last(name, len(self._steps.get(name, ())))

    def last(self, name: str, count: int) -> Series:
        """A metric over the last so many of the steps that have it."""
        steps, values = self._steps.get(name, []), self._values.get(name, [])
        start = max(len(steps) - count, 0)
        return Series(tuple(steps[start:]), tuple(values[start:]))

    def first(self, name: str, count: int) -> Series:
        """A metric over the first so many of the steps that have it."""
        return Series(tuple(self._steps.get(name, [])[:count]), tuple(self._values.get(name, [])[:count]))

    def now(self, name: str) -> float | None:
        """The metric at the latest step; None where it is absent or not finite."""
        steps = self._steps.get(name)
        return self._values[name][-1] if steps and steps[-1] == self.step else None

    def labels(self, pattern: str) -> list[str]:
        """What stands for `{label}` in the names of the metrics that fit a pattern, in order of appearance."""
        before, _, after = pattern.partition("{label}")
        found = (
            re.fullmatch(f"{re.escape(before)}(.+){re.escape(after)}", name)
            for name in self._steps
            if name.startswith(before)
        )
        return [match[1] for match in found if match and "/" not in match[1]]
