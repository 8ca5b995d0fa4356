from __future__ import annotations

import itertools
import math
import random

import pytest

from groupwise.evaluate.ratings import Level, Rated, krippendorff_alpha, means, preferences

# The example of Krippendorff 2011 with missing values: four raters, twelve units.
PUBLISHED = """
1 2 3 3 2 1 4 1 2 . . .
1 2 3 3 2 2 4 1 2 5 . 3
. 3 3 3 2 3 4 2 2 5 1 .
1 2 3 3 2 4 4 1 2 5 1 .
"""
UNITS = [
    [int(value) for value in column if value != "."]
    for column in zip(*(line.split() for line in PUBLISHED.split("\n") if line), strict=True)
]


def plain_alpha(units: list[list[int]], level: Level) -> float:
    """The definition, pair by pair."""
    units = [unit for unit in units if len(unit) > 1]
    values = [value for unit in units for value in unit]

    def squared(c: int, k: int) -> float:
        if level == "nominal":
            return float(c != k)
        if level == "interval":
            return float((c - k) ** 2)
        low, high = min(c, k), max(c, k)
        ranks = sum(1.0 for v in values if low <= v <= high)
        return (
            (ranks - sum(0.5 for v in values if v == c) - sum(0.5 for v in values if v == k)) ** 2
            if c != k
            else 0.0
        )

    within = sum(
        squared(a, b) / (len(unit) - 1) for unit in units for a, b in itertools.permutations(unit, 2)
    ) / len(values)
    across = sum(squared(a, b) for a, b in itertools.permutations(values, 2)) / (
        len(values) * (len(values) - 1)
    )
    return 1 - within / across


@pytest.mark.parametrize(("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_the_published_example(level: Level, alpha: float) -> None:
    assert krippendorff_alpha(UNITS, level) == pytest.approx(alpha, abs=5e-4)


def test_by_hand() -> None:
    # Units (1,1), (2,2), (1,2): 6 values, three of each. Observed: the last unit's two ordered pairs, 2 / 6 = 1/3.
    # Expected: 2 x 3 x 3 / (6 x 5) = 0.6. Alpha 1 - (1/3) / 0.6 = 4/9.
    assert krippendorff_alpha([[1, 1], [2, 2], [1, 2]], "nominal") == pytest.approx(4 / 9)
    # Units (1,1), (3,3), (1,5): observed 2 x 16 / 6 = 16/3. Expected over ordered pairs of 1,1,3,3,1,5: 1 and 3 six
    # pairs of 4, 1 and 5 three of 16, 3 and 5 two of 4, twice over 30: 2 x (24 + 48 + 8) / 30 = 16/3. Alpha 0.
    assert krippendorff_alpha([[1, 1], [3, 3], [1, 5]], "interval") == pytest.approx(0.0)
    # Ordinal: n1 = 3, n3 = 2, n5 = 1. From 1 to 5: 6 - 1.5 - 0.5 = 4; from 1 to 3: 5 - 1.5 - 1 = 2.5; from 3 to 5:
    # 3 - 1 - 0.5 = 1.5. Observed 2 x 16 / 6 = 16/3, expected 2 x (6 x 6.25 + 3 x 16 + 2 x 2.25) / 30 = 6, so 1 - 8/9.
    assert krippendorff_alpha([[1, 1], [3, 3], [1, 5]], "ordinal") == pytest.approx(1 / 9)


@pytest.mark.parametrize("level", ["nominal", "ordinal", "interval"])
def test_it_is_the_definition(level: Level) -> None:
    draw = random.Random(0)
    for _ in range(20):
        units = [[draw.randint(1, 5) for _ in range(draw.randint(0, 4))] for _ in range(12)]
        assert krippendorff_alpha(units, level) == pytest.approx(plain_alpha(units, level))


def test_its_ends() -> None:
    assert krippendorff_alpha([[1, 1], [5, 5, 5], [3, 3]], "ordinal") == 1.0
    assert krippendorff_alpha([[1, 5], [5, 1], [1, 5]], "interval") < 0
    assert math.isnan(krippendorff_alpha([[3, 3], [3, 3]]))
    assert math.isnan(krippendorff_alpha([[1], [2], []]))


def rated(model: str, prompt: str, **ratings: int) -> Rated:
    return Rated(model=model, prompt=prompt, ratings=ratings)


def test_a_response_counts_once_however_many_rated_it() -> None:
    items = [rated("a", "p", x=5, y=5, z=2), rated("a", "q", x=2), rated("b", "p", x=5), rated("b", "q")]
    found = means(items)
    assert list(found) == ["b", "a"]
    assert found["a"].value == 3.0
    assert (found["a"].low, found["a"].high) == (2.0, 4.0)
    assert found["b"].value == 5.0


def test_preferences_by_hand() -> None:
    items = [
        rated("a", "p", x=5, y=3),
        rated("b", "p", x=4, y=3),  # x prefers a, y is torn: 0.75
        rated("a", "q", x=1),
        rated("b", "q", x=2, y=5),  # x prefers b, y saw one alone: 0
        rated("a", "r", x=1),
        rated("b", "r", y=2),  # nobody saw both
        rated("c", "s", z=1),
    ]
    (found,) = preferences(items)
    assert (found.model, found.other, found.prompts) == ("a", "b", 2)
    assert found.share.value == 0.375
    assert found.share.low < 0.375 < found.share.high
