"""Metrics that can be added: a mean carries its sum and count, so that a mean of means cannot happen.

Each is a frozen summary of some values; `a + b` is the summary of both sets, whichever micro-batch or rank they came
from, and `value` is the number that is logged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np


class Metric(Protocol):
    """A summary of values that can be combined with another of its kind."""

    @property
    def value(self) -> float:
        """The number to log."""
        ...

    @property
    def empty(self) -> bool:
        """True when it summarises no value, so that there is nothing to log."""
        ...

    def __add__(self, other: Self, /) -> Self: ...


@dataclass(frozen=True, slots=True)
class Mean:
    """Sum over count; NaN when empty."""

    total: float = 0.0
    count: float = 0.0

    @classmethod
    def of(cls, values: Iterable[float]) -> Mean:
        """The mean of some values."""
        array = np.asarray(list(values) if not isinstance(values, np.ndarray) else values, dtype=np.float64)
        return cls(float(array.sum()), float(array.size))

    @property
    def value(self) -> float:
        """Sum over count."""
        return self.total / self.count if self.count else math.nan

    @property
    def empty(self) -> bool:
        """True when it summarises no value."""
        return not self.count

    def __add__(self, other: Mean) -> Mean:
        return Mean(self.total + other.total, self.count + other.count)


@dataclass(frozen=True, slots=True)
class Total:
    """A plain sum."""

    total: float = 0.0

    @property
    def value(self) -> float:
        """The sum."""
        return self.total

    @property
    def empty(self) -> bool:
        """True when it summarises no value."""
        return False

    def __add__(self, other: Total) -> Total:
        return Total(self.total + other.total)


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest value; NaN when empty."""

    largest: float = -math.inf

    @classmethod
    def of(cls, values: Iterable[float]) -> Largest:
        """The largest of some values."""
        return cls(max((float(v) for v in values), default=-math.inf))

    @property
    def value(self) -> float:
        """The largest value."""
        return math.nan if self.largest == -math.inf else self.largest

    @property
    def empty(self) -> bool:
        """True when it summarises no value."""
        return self.largest == -math.inf

    def __add__(self, other: Largest) -> Largest:
        return Largest(max(self.largest, other.largest))


@dataclass(frozen=True, slots=True)
class Smallest:
    """The smallest value; NaN when empty."""

    smallest: float = math.inf

    @classmethod
    def of(cls, values: Iterable[float]) -> Smallest:
        """The smallest of some values."""
        return cls(min((float(v) for v in values), default=math.inf))

    @property
    def value(self) -> float:
        """The smallest value."""
        return math.nan if self.smallest == math.inf else self.smallest

    @property
    def empty(self) -> bool:
        """True when it summarises no value."""
        return self.smallest == math.inf

    def __add__(self, other: Smallest) -> Smallest:
        return Smallest(min(self.smallest, other.smallest))


@dataclass(frozen=True, slots=True)
class Spread:
    """The population standard deviation, from count, mean and sum of squared deviations (Chan et al. 1979)."""

    count: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """The spread of some values."""
        array = np.asarray(list(values), dtype=np.float64)
        if not array.size:
            return cls()
        mean = float(array.mean())
        return cls(float(array.size), mean, float(((array - mean) ** 2).sum()))

    @property
    def value(self) -> float:
        """The standard deviation; NaN when empty."""
        return math.sqrt(self.squares / self.count) if self.count else math.nan

    @property
    def empty(self) -> bool:
        """True when it summarises no value."""
        return not self.count

    def __add__(self, other: Spread) -> Spread:
        count = self.count + other.count
        if not count:
            return Spread()
        gap = other.mean - self.mean
        return Spread(
            count,
            self.mean + gap * other.count / count,
            self.squares + other.squares + gap**2 * self.count * other.count / count,
        )


def combine(parts: Iterable[Mapping[str, Metric]]) -> dict[str, Metric]:
    """The metrics of all parts together, name by name."""
    combined: dict[str, Metric] = {}
    for part in parts:
        for name, metric in part.items():
            combined[name] = combined[name] + metric if name in combined else metric
    return combined


def values(metrics: Mapping[str, Metric]) -> dict[str, float]:
    """The numbers to log; metrics of nothing (NaN by emptiness) are left out."""
    return {name: metric.value for name, metric in metrics.items() if not metric.empty}
