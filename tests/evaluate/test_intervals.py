from __future__ import annotations

import math

import numpy as np
import pytest

from groupwise.evaluate.intervals import (
    Estimate,
    bootstrap_interval,
    share_interval,
    student_interval,
    student_quantile,
)


def test_a_share_by_hand() -> None:
    # Wilson for 8 of 10 with z^2 = 3.841459: middle (0.8 + 0.1920729) / 1.3841459 = 0.7167402, half 1.959964 x
    # sqrt(0.8 x 0.2 / 10 + 3.841459 / 400) / 1.3841459 = 0.2265777.
    found = share_interval([1.0] * 8 + [0.0] * 2)
    assert found.value == 0.8
    assert (found.low, found.high) == pytest.approx((0.4901625, 0.9433179), abs=1e-6)


@pytest.mark.parametrize(("rate", "low", "high"), [(0.0, 0.0, 0.27754), (1.0, 0.72246, 1.0)])
def test_all_or_none_is_not_certain(rate: float, low: float, high: float) -> None:
    # z^2 / n / (1 + z^2 / n) = 0.3841459 / 1.3841459 = 0.27753.
    found = share_interval([rate] * 10)
    assert (found.low, found.high) == pytest.approx((low, high), abs=2e-5)


def test_several_samples_of_a_prompt_tell_more_but_not_as_much_as_prompts() -> None:
    mixed = [0.0, 0.25, 0.5, 0.75, 1.0] * 8
    one, four = share_interval(mixed), share_interval(mixed, draws=4)
    independent = share_interval([float(i < 80) for i in range(160)])
    width = [each.high - each.low for each in (one, four, independent)]
    assert width[0] > width[1] > width[2]
    # Equal rates are worth all samples: 40 prompts x 4.
    assert share_interval([0.5] * 40, draws=4) == independent
    # One prompt is one prompt.
    assert share_interval([0.5], draws=100) == share_interval([0.5])


def test_a_bootstrap_of_three_is_their_range() -> None:
    found = bootstrap_interval([0.1, 0.5, 0.3])
    assert (found.value, found.low, found.high) == pytest.approx((0.3, 0.1, 0.5))


def test_a_bootstrap_of_many_is_the_usual_interval() -> None:
    values = np.random.default_rng(3).normal(5.0, 2.0, size=400)
    found = bootstrap_interval(values.tolist())
    half = 1.96 * values.std(ddof=1) / 20
    assert found.value == pytest.approx(values.mean())
    assert (found.value - found.low, found.high - found.value) == pytest.approx((half, half), rel=0.06)
    assert bootstrap_interval(values.tolist()) == found
    one = bootstrap_interval([2.5])  # says nothing of others
    assert one == Estimate(2.5, -math.inf, math.inf)
    assert (one.text(".1f"), one.data()) == ("2.5", {"value": 2.5, "low": None, "high": None})


@pytest.mark.parametrize(
    ("freedom", "quantile"),  # the table of any textbook, two-sided 5 %
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042), (1000, 1.962)],
)
def test_student(freedom: int, quantile: float) -> None:
    assert student_quantile(freedom) == pytest.approx(quantile, abs=6e-4)


def test_a_mean_of_few_by_hand() -> None:
    # 1, 2, 6: mean 3, sample variance (4 + 1 + 9) / 2 = 7, half 4.30265 sqrt(7 / 3) = 6.5724.
    found = student_interval([1.0, 2.0, 6.0])
    assert (found.value, found.low, found.high) == pytest.approx((3.0, -3.5724, 9.5724), abs=1e-4)
    assert student_interval([1.0]) == Estimate(1.0, -math.inf, math.inf)


@pytest.mark.parametrize("interval", [share_interval, bootstrap_interval, student_interval])
def test_nothing_has_no_interval(interval: object) -> None:
    with pytest.raises(ValueError, match=r"no (prompts|values)"):
        interval([])  # type: ignore[operator]


def test_how_it_is_written() -> None:
    assert Estimate(0.5, 0.25, 0.75).text() == "50.0% [25.0%, 75.0%]"
    assert Estimate(1.5, 1, 2).text(".2f") == "1.50 [1.00, 2.00]"
