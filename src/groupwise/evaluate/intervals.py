"""How sure a number is: intervals for shares, means and differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import mpmath
import numpy as np

LEVEL = 0.95
"""Share of repetitions whose interval is to hold the true value."""
RESAMPLES = 10_000
"""Of a bootstrap interval: its ends then move by less than a fiftieth of its width from one seed to another."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval."""

    value: float
    """The estimate."""
    low: float
    """Lower end; -inf where nothing is known of it."""
    high: float
    """Upper end; inf where nothing is known of it."""

    def text(self, spec: str = ".1%") -> str:
        """The number with its interval in brackets, as in `50.0% [38.1%, 61.9%]`; alone where that is unknown."""
        if not math.isfinite(self.low):
            return f"{self.value:{spec}}"
        return f"{self.value:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"

    def data(self) -> dict[str, float | None]:
        """For JSON: what is not finite is None."""
        named = {"value": self.value, "low": self.low, "high": self.high}
        return {name: value if math.isfinite(value) else None for name, value in named.items()}


def share_interval(rates_P: Sequence[float], *, draws: int = 1) -> Estimate:
    """The mean of rates between 0 and 1, one per prompt, with a Wilson interval for as many prompts as it is worth.

    Wilson 1927 ("Probable inference, the law of succession, and statistical inference", JASA 22) for a share m of n:
    (m + z^2/2n +- z sqrt(m (1-m)/n + z^2/4n^2)) / (1 + z^2/n). Rates that are means of several samples vary less
    between prompts than single ones, so n is the effective number m (1-m) / v with v the squared standard error of the
    mean, as for surveys (Korn and Graubard 1998): never fewer than the prompts, never more than all samples. Unlike a
    bootstrap it keeps its width where all prompts pass or none does.

    Args:
        rates_P: the share of one prompt that passes, [P]; prompts are what was drawn.
        draws: samples per prompt that a rate is the mean of.

    Raises:
        ValueError: no rates.
    """
    rates = np.asarray(rates_P, dtype=np.float64)
    if not rates.size:
        raise ValueError("an interval of no prompts was asked for")
    count, mean = rates.size, float(rates.mean())
    worth = float(count)
    variance = float(rates.var(ddof=1)) / count if count > 1 else 0.0
    if draws > 1 and count > 1:
        worth = count * draws if variance == 0 else mean * (1 - mean) / variance
        worth = min(max(worth, count), count * draws) if 0 < mean < 1 else float(count)
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    middle = mean + z * z / (2 * worth)
    half = z * math.sqrt(mean * (1 - mean) / worth + z * z / (4 * worth * worth))
    scale = 1 + z * z / worth
    low, high = max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)
    return Estimate(mean, min(low, mean), max(high, mean))


def bootstrap_interval(values_N: Sequence[float], *, seed: int = 0) -> Estimate:
    """The mean with its percentile bootstrap interval (Efron 1979, "Bootstrap methods", Annals of Statistics 7).

    Of three values, as of three seeds, it is their range: the chance of drawing one of them three times, 1/27, is more
    than what the interval leaves out at either end. Such a range holds the true mean in about three cases of four. Of
    one value nothing is known, so the interval is the whole line.

    Args:
        values_N: what was drawn, [N]: prompts, items or seeds.
        seed: of the resampling; the same gives the same interval.

    Raises:
        ValueError: no values.
    """
    values = np.asarray(values_N, dtype=np.float64)
    if not values.size:
        raise ValueError("an interval of no values was asked for")
    if values.size == 1:
        return Estimate(float(values[0]), -math.inf, math.inf)
    order = np.random.default_rng(seed)
    means = np.concatenate(
        [
            values[order.integers(values.size, size=(min(500, RESAMPLES - start), values.size))].mean(axis=1)
            for start in range(0, RESAMPLES, 500)
        ]
    )
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(values.mean()), float(low), float(high))


def student_interval(values_N: Sequence[float]) -> Estimate:
    """The mean with Student's interval: mean +- t sqrt(sample variance / N), t of N - 1 degrees of freedom.

    For differences of a few paired runs, where a bootstrap is too narrow: 3 pairs ask for 4.30 standard errors, not
    1.96. It takes the values for normal. Of one value nothing is known, so the interval is the whole line.

    Args:
        values_N: what was drawn, [N].

    Raises:
        ValueError: no values.
    """
    values = np.asarray(values_N, dtype=np.float64)
    if not values.size:
        raise ValueError("an interval of no values was asked for")
    mean = float(values.mean())
    if values.size == 1:
        return Estimate(mean, -math.inf, math.inf)
    half = student_quantile(values.size - 1) * math.sqrt(float(values.var(ddof=1)) / values.size)
    return Estimate(mean, mean - half, mean + half)


def student_quantile(freedom: int) -> float:
    """How many standard errors a two-sided Student interval reaches at `LEVEL`: 12.706 for 1, 4.303 for 2.

    Args:
        freedom: degrees of freedom, 1 or more.
    """
    # P(|T| > t) is the regularised incomplete beta function of freedom / (freedom + t^2) at (freedom / 2, 1 / 2).
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        tail = mpmath.betainc(freedom / 2, 0.5, 0, freedom / (freedom + middle * middle), regularized=True)
        low, high = (middle, high) if tail > 1 - LEVEL else (low, middle)
    return (low + high) / 2
