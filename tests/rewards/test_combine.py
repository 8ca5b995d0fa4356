import pytest

from groupwise.errors import RewardError
from groupwise.rewards.combine import Part, combine

LABELS = ("a", "b")


def test_the_reward_is_the_weighted_sum() -> None:
    verdict = combine(LABELS, (2.0, -0.5), (Part(value=3.0), Part(value=4.0)))
    assert verdict.reward == 4.0  # 2 x 3 - 0.5 x 4
    assert verdict.parts == {"a": 3.0, "b": 4.0}
    assert verdict.failure is None


def test_a_part_that_does_not_apply_is_skipped_without_rescaling() -> None:
    assert combine(LABELS, (0.25, 0.75), (Part(value=1.0), Part())).reward == 0.25


def test_zero_applies() -> None:
    assert combine(LABELS, (1.0, 1.0), (Part(value=0.0), Part())).reward == 0.0


def test_nothing_applies() -> None:
    verdict = combine(LABELS, (1.0, 1.0), (Part(), Part()))
    assert (verdict.reward, verdict.failure) == (None, "no reward applies")


def test_a_part_that_is_only_watched_gives_no_reward() -> None:
    verdict = combine(LABELS, (0.0, 1.0), (Part(value=9.0), Part()))
    assert (verdict.reward, verdict.parts) == (None, {"a": 9.0, "b": None})
    assert combine(LABELS, (0.0, 1.0), (Part(value=9.0), Part(value=2.0))).reward == 2.0


def test_a_failure_without_stand_in_leaves_the_rollout_out() -> None:
    verdict = combine(LABELS, (1.0, 1.0), (Part(value=5.0), Part(failure="b broke")))
    assert (verdict.reward, verdict.parts, verdict.failure) == (None, {"a": 5.0, "b": None}, "b broke")


def test_a_stand_in_enters_the_sum_but_not_the_parts() -> None:
    verdict = combine(LABELS, (1.0, 2.0), (Part(value=5.0), Part(failure="b broke", stand_in=-1.0)))
    assert (verdict.reward, verdict.parts, verdict.failure) == (
        3.0,
        {"a": 5.0, "b": None},
        "b broke",
    )  # 5 + 2 x -1


def test_several_failures_are_all_told() -> None:
    verdict = combine(LABELS, (1.0, 1.0), (Part(failure="a broke"), Part(failure="b broke", stand_in=0.0)))
    assert (verdict.reward, verdict.failure) == (None, "a broke; b broke")


def test_a_sum_beyond_floats_is_an_error() -> None:
    with pytest.raises(RewardError, match="weighted sum of the rewards is inf"):
        combine(LABELS, (10.0, 1.0), (Part(value=1e308), Part()))
