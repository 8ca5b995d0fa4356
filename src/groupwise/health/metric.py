"""Metrics that can be added: a mean carries its sum and count, so that a mean of means cannot happen.

Each is a frozen summary of some values; `a + b` is the summary of both sets, whichever micro-batch or rank they came
from, and `value` is the number that is logged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Protocol, Self

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
    """The largest value; NaN when empty, and when one of the values is NaN."""

    largest: float | None = None

    @classmethod
    def of(cls, values: Iterable[float]) -> Largest:
        """The largest of some values."""
        array = np.asarray(list(values), dtype=np.float64)
        return cls(float(array.max())) if array.size else cls()  # NumPy's keeps NaN wherever it stands

    @property
    def value(self) -> float:
        """The largest value."""
        return math.nan if self.largest is None else self.largest

    @property
    def empty(self) -> bool:
        """True when it summarises no value."""
        return self.largest is None

    def __add__(self, other: Largest) -> Largest:
        return Largest.of([v for v in (self.largest, other.largest) if v is not None])


@dataclass(frozen=True, slots=True)
class Smallest:
    """The smallest value; NaN when empty, and when one of the values is NaN."""

    smallest: float | None = None

    @classmethod
    def of(cls, values: Iterable[float]) -> Smallest:
        """The smallest of some values."""
        array = np.asarray(list(values), dtype=np.float64)
        return cls(float(array.min())) if array.size else cls()

    @property
    def value(self) -> float:
        """The smallest value."""
        return math.nan if self.smallest is None else self.smallest

    @property
    def empty(self) -> bool:
        """True when it summarises no value."""
        return self.smallest is None

    def __add__(self, other: Smallest) -> Smallest:
        return Smallest.of([v for v in (self.smallest, other.smallest) if v is not None])


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


_KINDS = {kind.__name__: kind for kind in (Mean, Total, Largest, Smallest, Spread)}


def plain(metrics: Mapping[str, Metric]) -> dict[str, list[Any]]:
    """Metrics as data: each a list of its kind's name and what it summarises, for `from_plain`."""
    return {name: [type(each).__name__, *astuple(each)] for name, each in metrics.items()}  # type: ignore[call-overload]


def from_plain(data: Mapping[str, Sequence[Any]]) -> dict[str, Metric]:
    """What `plain` was given."""
    return {name: _KINDS[kind](*values) for name, (kind, *values) in data.items()}
