import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.rewards.scorers.repetition import repetition


@pytest.mark.parametrize(
    ("text", "n", "score"),
    [
        ("a b c d", 3, 0.0),
        ("a b a b a b", 2, -0.6),  # ab ba ab ba ab: 2 distinct of 5
        ("a a a a", 1, -0.75),  # 1 of 4
        ("A a", 1, -0.5),  # upper and lower case are the same
        ("a b", 3, 0.0),  # no trigram
        ("", 1, 0.0),
    ],
)
def test_hand_worked(text: str, n: int, score: float) -> None:
    assert repetition([text], n=n) == [pytest.approx(score, abs=1e-12)]


def test_the_penalty_is_a_factor() -> None:
    assert repetition(["a a a a"], n=1, penalty=2.0) == [-1.5]


def test_characters_serve_texts_without_spaces() -> None:
    assert repetition(["好好好好"], n=2) == [0.0]  # one word
    assert repetition(["好好好好"], n=2, unit="characters") == [pytest.approx(-2 / 3, abs=1e-12)]  # 1 of 3


def test_no_negative_zero() -> None:
    assert math.copysign(1, repetition(["a b c"])[0]) == 1.0


def slowly(words: Sequence[str], n: int) -> float:
    grams = [words[i : i + n] for i in range(len(words) - n + 1)]
    again = sum(gram in grams[:i] for i, gram in enumerate(grams))
    return -again / len(grams) if grams else 0.0


@given(st.lists(st.sampled_from("abc"), max_size=12), st.integers(1, 4))
def test_as_counted_one_by_one(words: list[str], n: int) -> None:
    assert repetition([" ".join(words)], n=n)[0] == pytest.approx(slowly(words, n), abs=1e-12)
