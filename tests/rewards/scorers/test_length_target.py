import pytest

from groupwise.rewards.scorers.length_target import length_target


def test_it_falls_on_both_sides_of_the_target() -> None:
    texts = [" ".join(["w"] * n) for n in (10, 8, 12, 15, 6, 1)]
    # 1 - |n - 10| / 4 for n = 10, 8, 12; 0 from 4 away.
    assert length_target(texts, target=10, width=4, unit="words") == [1.0, 0.5, 0.5, 0.0, 0.0, 0.0]


def test_a_rows_own_target_comes_first() -> None:
    assert length_target(["a b", "a b"], None, [2, None], target=4, width=4, unit="words") == [1.0, 0.5]


def test_tokens_are_those_sampled() -> None:
    assert length_target(["ab", "ab"], [[1, 2, 3], [1] * 5], target=5, width=4) == [0.5, 1.0]


def test_a_blank_completion_is_not_paid_for_being_near_a_short_target() -> None:
    assert length_target(["", " \n", "a"], target=1, width=10, unit="characters") == [0.0, 0.0, 1.0]


def test_wrong_targets_are_errors() -> None:
    for wrong in ("5", 2.5, True):
        with pytest.raises(TypeError, match="not a whole number"):
            length_target(["a"], None, [wrong], unit="words")  # type: ignore[list-item]
    with pytest.raises(ValueError, match="at least 1"):
        length_target(["a"], None, [0], unit="words")
