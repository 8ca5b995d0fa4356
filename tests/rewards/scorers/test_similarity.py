import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.rewards.scorers.similarity import similarity


@pytest.mark.parametrize(
    ("said", "wanted", "score"),
    [
        ("abc", "abc", 1.0),
        ("abc", "abd", 2 * 2 / 6),  # ab is common
        ("abc", "cba", 2 * 1 / 6),
        ("abc", "xyz", 0.0),
        ("ABC", "abc", 1.0),
        ("a  b\n", "a b", 1.0),
        ("e\u0301", "\u00e9", 1.0),
        ("abcabcabc", "abc", 2 * 3 / 12),  # saying it three times costs
        ("", "abc", 0.0),
    ],
)
def test_hand_worked(said: str, wanted: str, score: float) -> None:
    assert similarity([said], [wanted]) == [pytest.approx(score, abs=1e-12)]


def test_words_and_case() -> None:
    assert similarity(["the red cat"], ["the cat sat"], unit="words") == [pytest.approx(4 / 6, abs=1e-12)]
    assert similarity(["ABC"], ["abc"], ignore_case=False) == [0.0]


def test_the_nearest_reference_counts() -> None:
    assert similarity(["abc"], [["xyz", "abd"]]) == [pytest.approx(4 / 6, abs=1e-12)]
    assert similarity(["a", "a"], [None, []]) == [None, None]


def slowly(a: str, b: str) -> float:
    """By the textbook's table of common subsequences."""
    row = [0] * (len(b) + 1)
    for x in a:
        above, row = row, [0] * (len(b) + 1)
        for j, y in enumerate(b, start=1):
            row[j] = above[j - 1] + 1 if x == y else max(above[j], row[j - 1])
    return 2 * row[-1] / (len(a) + len(b))


@given(st.text("abc", min_size=1, max_size=12), st.text("abc", min_size=1, max_size=12))
def test_as_by_the_table_and_the_same_both_ways(a: str, b: str) -> None:
    assert similarity([a], [b])[0] == pytest.approx(slowly(a, b), abs=1e-12)
    assert similarity([a], [b]) == similarity([b], [a])
