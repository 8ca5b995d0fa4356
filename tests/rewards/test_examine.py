from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import RewardError
from groupwise.rewards import build
from groupwise.rewards.examine import Item, ask, measure
from groupwise.rewards.findings import findings, ordered, spreads
from groupwise.rewards.made_up import FORMS, Case
from groupwise.rewards.payment import paid

CASES = [
    Case(place=f"a:{i}", prompt=f"{i} + 1?", columns={"answer": str(i + 1)}, answer=str(i + 1))
    for i in range(20, 26)
]


def right(completions: list[str], answer: list[str]) -> list[float]:
    return [float(said == gold) for said, gold in zip(completions, answer, strict=True)]


def item(text: str, group: int = 0) -> Item:
    return Item(group=group, kind="sampled", name="s", prompt="p", text=text, columns={"answer": "a"})


def test_what_is_made_up_and_what_it_got() -> None:
    found = measure(build([], base=Path(), functions=[right]), CASES)
    assert found.forms["bare"] == 1.0
    assert found.form == FORMS["bare"]
    assert [each.value for each in found.of_kind("right")] == [1.0] * 6
    assert {each.value for each in found.of_kind("wrong", "scrambled")} == {0.0}
    assert len(found.of_kind("wrong")) == 6 * 5
    assert ordered(found) == (1.0, 0.0)
    # Of one 1 and six 0 (five wrong, one scrambled): variance (1 - 1/7) / 6, so std = sqrt(1/7).
    assert spreads(found.asked) == [pytest.approx((1 / 7) ** 0.5, abs=1e-12)] * 6
    empty = next(tried for tried in found.tried if tried.probe.name == "empty")
    assert paid(found, empty) == 0.0
    assert (found.repeats.again, found.repeats.elsewhere, found.repeats.correlation) == (
        0.0,
        0.0,
        pytest.approx(1.0),
    )


def test_a_form_that_is_given_is_used() -> None:
    def in_brackets(completions: list[str], answer: list[str]) -> list[float]:
        return [float(said == f"[{gold}]") for said, gold in zip(completions, answer, strict=True)]

    rewards = build([], base=Path(), functions=[in_brackets])
    assert {each.value for each in measure(rewards, CASES).of_kind("right")} == {0.0}
    found = measure(rewards, CASES, form="[{answer}]")
    assert {each.value for each in found.of_kind("right")} == {1.0}
    assert found.forms["[{answer}]"] == 1.0


def test_rows_without_answers_get_plain_replies() -> None:
    def vowels(completions: list[str]) -> list[float]:
        return [float(sum(c in "aeiou" for c in said)) for said in completions]

    rewards = build([], base=Path(), functions=[vowels])
    cases = [Case(place="a:0", prompt="p", columns={}, answer=None)]
    found = measure(rewards, cases, sampled=[item("aaa", 1), item("b", 1)])
    assert found.forms == {}
    assert {each.item.kind for each in found.asked} == {"reply", "sampled"}
    assert [each.value for each in found.of_kind("sampled")] == [3.0, 0.0]
    assert ordered(found) is None


def test_failures_stay_with_the_completion_that_failed() -> None:
    def picky(completions: list[str], answer: list[str]) -> list[float]:
        if "bad" in completions:
            raise ValueError("no")
        return [1.0] * len(completions)

    verdicts = ask(build([], base=Path(), functions=[picky]), [item("good"), item("bad"), item("good")])
    assert [verdict.reward for verdict in verdicts] == [1.0, None, 1.0]
    assert "ValueError: no" in str(verdicts[1].failure)
    with pytest.raises(RewardError):  # the same reward, in a run
        build([], base=Path(), functions=[picky]).score_batch(_batch(["bad"]))


def _batch(texts: list[str]) -> Any:
    from groupwise.rewards.examine import _batch

    return _batch([item(text) for text in texts])


def test_a_wrong_count_of_a_batch_is_a_fault_though_each_alone_is_answered() -> None:
    def first_only(completions: list[str], answer: list[str]) -> list[float]:
        return [float(completions[0] == answer[0])]

    found = measure(build([], base=Path(), functions=[first_only]), CASES)
    assert all(each.failure is not None for each in found.asked)
    (fault,) = findings(found)
    assert fault.name == "fails_on_samples"
    assert "fails on 100% of ordinary completions" in fault.says
    assert (
        "returned 1 values for 42 rollouts" in fault.says
    )  # of each of 6 rows one right, five wrong, one scrambled


def test_what_always_fails_is_told_once() -> None:
    def one_more(completions: list[str]) -> list[float]:
        return [0.0] * (len(completions) + 1)

    (fault,) = findings(measure(build([], base=Path(), functions=[one_more]), CASES))
    assert "returned 2 values for 1 rollouts" in fault.says


def test_a_reward_that_compares_a_group_always_sees_one() -> None:
    sizes: list[int] = []

    def wins(completions: list[str], group_ids: list[str], answer: list[str]) -> list[float]:
        """The share of the others in its group that a completion beats or equals."""
        sizes.extend(group_ids.count(group) for group in dict.fromkeys(group_ids))
        scores = right(completions, answer)
        return [
            sum(scores[i] >= s for s, other in zip(scores, group_ids, strict=True) if other == group)
            / group_ids.count(group)
            for i, group in enumerate(group_ids)
        ]

    found = measure(build([], base=Path(), functions=[wins]), CASES)
    assert found.repeats.elsewhere == 0.0
    assert ordered(found) == (1.0, 0.0)
    assert sizes.count(1) == 7  # single completions are asked about for their time alone
    empty = next(tried for tried in found.tried if tried.probe.name == "empty")
    assert [each.value for each in empty.asked] == [
        7 / 8
    ] * 4  # it beats or equals all but the right one, of 8


def test_time_is_projected_from_two_sizes_of_calls() -> None:
    import time

    def slow(completions: list[str], answer: list[str]) -> list[float]:
        time.sleep(0.02 + 0.001 * len(completions))
        return right(completions, answer)

    cost = measure(
        build([], base=Path(), functions=[slow]), CASES[:2], rollouts_per_step=100, step_seconds=0.1
    ).cost
    # 20 ms a call and 1 ms a completion: 120 ms for a hundred; a busy machine only adds.
    assert 0.115 < cost.seconds_step < 0.5
    assert cost.share == pytest.approx(cost.seconds_step / (cost.seconds_step + 0.1))
