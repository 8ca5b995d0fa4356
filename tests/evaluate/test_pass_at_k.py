from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.errors import ConfigError
from groupwise.evaluate.pass_at_k import pass_at, pass_at_k


def by_subsets(passed_G: list[bool], k: int) -> float:
    """The definition: the share of the k-subsets in which one passes."""
    chosen = [any(subset) for subset in combinations(passed_G, k)]
    return sum(chosen) / len(chosen)


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (4, 1, 1, 0.25),
        (4, 1, 2, 0.5),  # 1 - C(3, 2) / C(4, 2) = 1 - 3 / 6
        (5, 2, 3, 0.9),  # 1 - C(3, 3) / C(5, 3) = 1 - 1 / 10
        (10, 3, 5, 11 / 12),  # 1 - C(7, 5) / C(10, 5) = 1 - 21 / 252
        (5, 3, 3, 1.0),  # fewer than three fail, so every subset holds one that passes
        (7, 0, 4, 0.0),
        (7, 7, 1, 1.0),
    ],
)
def test_by_hand(n: int, c: int, k: int, expected: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-15)


@given(st.integers(1, 9), st.data())
def test_it_is_the_mean_over_all_subsets(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    assert pass_at_k(n, c, k) == pytest.approx(by_subsets([i < c for i in range(n)], k), abs=1e-15)


def test_large_numbers_are_exact() -> None:
    # 1 - C(n - 1, k) / C(n, k) = k / n; products of floats lose digits here.
    assert pass_at_k(5000, 1, 2000) == 0.4


@pytest.mark.parametrize("p", [0.03, 0.4])
def test_it_is_unbiased_where_the_naive_estimate_is_not(p: float) -> None:
    # The expectation over c of 16 with chance p each is 1 - (1 - p)^4, exactly; that of 1 - (1 - c/16)^4 is lower.
    from math import comb

    chance = [comb(16, c) * p**c * (1 - p) ** (16 - c) for c in range(17)]
    mean = sum(w * pass_at_k(16, c, 4) for c, w in enumerate(chance))
    naive = sum(w * (1 - (1 - c / 16) ** 4) for c, w in enumerate(chance))
    assert mean == pytest.approx(1 - (1 - p) ** 4, abs=1e-12)
    assert naive < mean - 0.002


def test_planted_data_gives_the_closed_form() -> None:
    # Passing 0, 1, 2 and 4 of 4: pass@2 is 0, 1/2, 5/6 and 1, mean 7/12; pass@1 7/16.
    passed = [[i < c for i in range(4)] for c in (0, 1, 2, 4)]
    assert pass_at(passed, 2).value == pytest.approx(7 / 12)
    assert pass_at(passed, 1).value == pytest.approx(7 / 16)
    found = [pass_at(passed, k) for k in (1, 2, 3, 4)]
    assert [f.low < f.value < f.high for f in found] == [True] * 4
    assert sorted(f.value for f in found) == [f.value for f in found]


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    # Prompts of different difficulty, 4 samples each; the truth is the mean over all prompts there could be.
    draw = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        chances = draw.beta(0.5, 1.0, size=60)
        passed = draw.random((60, 4)) < chances[:, None]
        found = pass_at(passed.tolist(), 1)
        held += found.low <= 1 / 3 <= found.high
    assert 0.92 < held / 400 < 0.98


def test_what_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"pass@3 needs 3 samples of each prompt, but there are 2; set"):
        pass_at([[True, False, True], [True, False]], 3)
    for n, c, k in ((2, 1, 3), (2, 3, 1), (2, 1, 0)):
        with pytest.raises(ValueError, match="not defined"):
            pass_at_k(n, c, k)
