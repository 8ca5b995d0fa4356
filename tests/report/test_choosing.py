"""Which groups a report opens: the order worked out by hand, and the budget held."""

import math

from groupwise.records.rollout_outline import GroupOutline
from groupwise.report.choosing import choose, estimate, in_turn, rank
from groupwise.report.reading import evenly


def outline(
    group: int, rewards: tuple[float | None, ...], lengths: tuple[int, ...] | None = None
) -> GroupOutline:
    lengths = lengths or tuple(3 for _ in rewards)
    return GroupOutline(
        group=group,
        prompt_id=f"p:{group}",
        prompt="?",
        responses_G=tuple("abc" for _ in rewards),
        rewards_G=rewards,
        lengths_G=lengths,
        truncated_G=tuple(False for _ in rewards),
    )


def test_spread_and_mean_of_what_is_known() -> None:
    group = outline(0, (1.0, None, 3.0, math.inf))
    # Of 1 and 3: mean 2, population std 1.
    assert (group.mean, group.spread) == (2.0, 1.0)
    none = outline(1, (None, None))
    assert math.isnan(none.mean)
    assert math.isnan(none.spread)


def test_the_most_telling_group_is_first() -> None:
    groups = [
        outline(0, (0.5, 0.5)),
        outline(1, (0.9, 0.9)),  # the highest mean
        outline(2, (0.0, 1.0)),  # the widest spread
        outline(3, (0.1, 0.1)),  # the lowest mean
        outline(4, (0.5, 0.5), (3, 90)),  # the longest
        outline(5, (None, None)),
    ]
    assert [group.group for group in rank(groups)] == [2, 1, 3, 4, 0, 5]
    assert [group.group for group in rank(groups[::-1])][:4] == [2, 1, 3, 4], (
        "the order of the file does not matter"
    )
    assert rank([]) == []


def test_ends_then_what_happened_then_halves() -> None:
    # 1..9: last, first, the step where something happened, then 5, then 3 and 7, then the rest.
    assert in_turn(range(1, 10), [6, 42]) == [9, 1, 6, 5, 3, 7, 2, 4, 8]
    assert in_turn([4], []) == [4]
    assert in_turn([], [1]) == []


def test_every_step_gives_one_group_before_any_gives_two() -> None:
    groups = {step: [outline(0, (0.0, 1.0)), outline(1, (0.2, 0.2))] for step in (1, 2, 3)}
    one = estimate(groups[1][0])
    assert choose(groups, first=[], budget_bytes=10 * one) == [(3, 0), (1, 0), (2, 0), (3, 1), (1, 1), (2, 1)]
    assert choose(groups, first=[], budget_bytes=4 * one) == [(3, 0), (1, 0), (2, 0), (3, 1)]
    assert choose(groups, first=[], budget_bytes=one - 1) == []


def test_a_group_too_large_makes_room_for_the_next() -> None:
    groups = {1: [outline(0, (0.0, 1.0), (2000, 2000)), outline(1, (0.2, 0.2))]}
    assert choose(groups, first=[], budget_bytes=estimate(groups[1][1])) == [(1, 1)]


def test_evenly_keeps_both_ends() -> None:
    assert evenly(range(1, 11), 4) == [1, 4, 7, 10]
    assert evenly([3, 5], 4) == [3, 5]
    assert evenly([3, 5, 8], 1) == [8]
