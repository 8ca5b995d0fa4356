import math
from collections.abc import Callable

import numpy as np
import pytest

from groupwise.health.metric import Largest, Mean, Metric, Smallest, Spread, Total, combine, values

WHOLE: dict[str, tuple[Callable[..., Metric], Callable[..., float]]] = {
    "mean": (Mean.of, np.mean),
    "total": (lambda x: Total(float(np.sum(x))), np.sum),
    "largest": (Largest.of, np.max),
    "smallest": (Smallest.of, np.min),
    "spread": (Spread.of, np.std),
}
"""How each is made from values, and what it must be."""


@pytest.mark.parametrize("name", WHOLE)
def test_splits_combine_to_the_whole(name: str) -> None:
    """However the values are split, in whatever order the parts are added, some of them empty."""
    make, right = WHOLE[name]
    rng = np.random.default_rng(0)
    for _ in range(50):
        numbers = rng.normal(3.0, 2.0, rng.integers(1, 30))
        cuts = np.sort(rng.integers(0, len(numbers) + 1, rng.integers(0, 6)))
        parts = [make(part) for part in np.split(numbers, cuts)]
        rng.shuffle(parts)  # type: ignore[arg-type]
        [(key, whole)] = combine({"x": part} for part in parts).items()
        assert key == "x"
        assert whole.value == pytest.approx(right(numbers), rel=1e-12, abs=1e-12)
        assert make(numbers.tolist()).value == pytest.approx(right(numbers), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("make", [Mean.of, Largest.of, Smallest.of, Spread.of])
def test_any_iterable_will_do(make: Callable[..., Metric]) -> None:
    assert make(x for x in (1.0, 4.0)) == make([1, 4]) == make(np.array([1, 4], dtype=np.int32))


def test_a_mean_of_means_does_not_happen() -> None:
    # 1, 2, 3 and 7: 13 / 4; the mean of the means would be (2 + 7) / 2 = 4.5.
    whole = Mean.of([1, 2, 3]) + Mean.of([7])
    assert (whole.total, whole.count, whole.value) == (13.0, 4.0, 3.25)
    # Weighted: a sum of 6 over a weight of 1.5 is a mean of 4.
    assert Mean(6.0, 1.5).value == 4.0


def test_spread_by_hand() -> None:
    # 1, 2, 3: count 3, mean 2, squares 1 + 0 + 1 = 2. 5, 7: count 2, mean 6, squares 2.
    a, b = Spread.of([1, 2, 3]), Spread.of([5, 7])
    assert (a, b) == (Spread(3.0, 2.0, 2.0), Spread(2.0, 6.0, 2.0))
    # Together: gap 4; mean 2 + 4 * 2 / 5 = 3.6; squares 2 + 2 + 16 * 3 * 2 / 5 = 23.2; std sqrt(4.64) = 2.1541.
    # Directly: (2.6^2 + 1.6^2 + 0.6^2 + 1.4^2 + 3.4^2) = 6.76 + 2.56 + 0.36 + 1.96 + 11.56 = 23.2.
    for whole in (a + b, b + a):
        assert (whole.count, whole.mean) == (5.0, pytest.approx(3.6))
        assert whole.squares == pytest.approx(23.2)
        assert whole.value == pytest.approx(2.1541, abs=5e-5)


def test_spread_keeps_its_digits() -> None:
    """A small spread around a large mean, where sums of squares would cancel: 1e8 + {0, 1, 2}, std sqrt(2 / 3)."""
    whole = Spread.of([1e8]) + Spread.of([1e8 + 1]) + Spread.of([1e8 + 2])
    assert whole.value == pytest.approx(math.sqrt(2 / 3), rel=1e-9)


EMPTY: list[Metric] = [
    Mean.of([]),
    Mean(),
    Largest.of([]),
    Largest(),
    Smallest.of([]),
    Smallest(),
    Spread.of([]),
    Spread(),
]


@pytest.mark.parametrize("empty", EMPTY, ids=lambda m: type(m).__name__)
def test_nothing_is_not_a_number_and_adds_nothing(empty: Metric) -> None:
    assert empty.empty
    assert math.isnan(empty.value)
    assert (empty + type(empty)()).empty
    full = type(empty).of([2.0, 5.0])  # type: ignore[attr-defined]
    assert not full.empty
    assert empty + full == full + empty == full


def test_values_leaves_out_what_is_empty() -> None:
    metrics: dict[str, Metric] = {
        "eval/reward_mean": Mean.of([]),
        "reward/max": Largest(),
        "reward/min": Smallest.of([4.0, -1.5]),
        "reward/failed_count": Total(),  # none failed: a number, not an absence
        "policy/loss": Mean(math.nan, 2.0),  # evidence, so it stays
    }
    found = values(metrics)
    assert list(found) == ["reward/min", "reward/failed_count", "policy/loss"]
    assert (found["reward/min"], found["reward/failed_count"]) == (-1.5, 0.0)
    assert math.isnan(found["policy/loss"])


def test_combine_goes_name_by_name() -> None:
    parts: list[dict[str, Metric]] = [
        {"a": Mean.of([1.0]), "b": Total(2.0)},
        {"b": Total(3.0), "c": Largest(4.0)},
        {"a": Mean.of([4.0, 4.0])},
        {},
    ]
    assert combine(parts) == {"a": Mean(9.0, 3.0), "b": Total(5.0), "c": Largest(4.0)}
    assert parts[0] == {"a": Mean.of([1.0]), "b": Total(2.0)}, "the parts are as they were"
    assert combine([]) == {}


@pytest.mark.parametrize("make", [Mean.of, Largest.of, Smallest.of, Spread.of])
def test_a_nan_is_not_lost(make: Callable[[list[float]], Metric]) -> None:
    """Wherever it stands, and whichever part is added first."""
    for numbers in ([math.nan, 1.0], [1.0, math.nan]):
        assert math.isnan(make(numbers).value)
        assert not make(numbers).empty
    for parts in ((make([math.nan]), make([1.0])), (make([1.0]), make([math.nan]))):
        assert math.isnan((parts[0] + parts[1]).value)
        assert not (parts[0] + parts[1]).empty


def test_infinite_extremes_are_values() -> None:
    assert (Largest.of([-math.inf]).value, Largest.of([-math.inf]).empty) == (-math.inf, False)
    assert (Smallest.of([math.inf]).value, Smallest.of([math.inf]).empty) == (math.inf, False)
    assert (Largest.of([1.0]) + Largest.of([math.inf])).value == math.inf
