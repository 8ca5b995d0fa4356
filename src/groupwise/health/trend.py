"""Whether a metric rises or falls, and how surely, from a straight line through its values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SURE = 4.0
"""How many standard errors a slope has to be away from 0. The same series is looked at after every step, so that a
limit of 2, right for a single look, would be passed by noise alone in most runs."""

_FEW = {1: 12.71, 2: 4.30}
"""Student's t for p = 0.05, two-sided, by degrees of freedom, where it is above SURE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A least-squares line."""

    start: float
    """Its value at the first point."""
    end: float
    """Its value at the last point."""
    score: float
    """Slope over its standard error; the sign is the slope's; 0 with fewer than three points."""
    points: int
    """How many there were."""

    @property
    def change(self) -> float:
        """From the first to the last point."""
        return self.end - self.start

    @property
    def rises(self) -> bool:
        """Surely up."""
        return self.score >= self._limit

    @property
    def falls(self) -> bool:
        """Surely down."""
        return -self.score >= self._limit

    @property
    def _limit(self) -> float:
        return max(SURE, _FEW.get(self.points - 2, 0.0))


def trend(values: Sequence[float], errors: Sequence[float] | None = None) -> Trend:
    """Fit a line to values at even distances.

    The standard error of the slope is the larger of the two that can be had: from the residuals, and from the values'
    own errors where these are known, since three points may lie on a line by chance.

    Args:
        values: finite, in order.
        errors: the standard error of each; None when they are not known.
    """
    count = len(values)
    y = np.asarray(values, dtype=np.float64)
    if count < 3:
        first, last = (float(y[0]), float(y[-1])) if count else (math.nan, math.nan)
        return Trend(start=first, end=last, score=0.0, points=count)
    x = np.arange(count) - (count - 1) / 2
    spread = float((x**2).sum())
    slope, middle = float((x * y).sum()) / spread, float(y.mean())
    residuals = y - middle - slope * x
    error = math.sqrt(float((residuals**2).sum()) / (count - 2) / spread)
    if errors is not None:
        own = np.asarray(errors, dtype=np.float64)
        error = max(error, math.sqrt(float(((x * own) ** 2).sum())) / spread)
    tiny = 1e-12 * max(
        1.0, abs(middle)
    )  # a line without any error is as sure as can be; a flat one is no trend
    score = 0.0 if abs(slope) <= tiny else slope / max(error, tiny)
    half = slope * (count - 1) / 2
    return Trend(start=middle - half, end=middle + half, score=score, points=count)
