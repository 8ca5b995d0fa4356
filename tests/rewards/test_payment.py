from pathlib import Path

import pytest

from groupwise.rewards import build
from groupwise.rewards.examine import Measured, Tried, measure
from groupwise.rewards.made_up import Case
from groupwise.rewards.payment import paid, pays, worth

CASES = [
    Case(place=f"a:{i}", prompt=f"{i} + 1?", columns={"answer": str(i + 1)}, answer=str(i + 1))
    for i in range(20, 26)
]


def measured(share: float) -> Measured:
    """Of a reward that gives 2 for the answer, -1 for another number, and a share of the way between for nothing."""

    def reward(completions: list[str], answer: list[str]) -> list[float]:
        return [
            2.0 if said == gold else -1.0 if said.strip() else -1.0 + 3.0 * share
            for said, gold in zip(completions, answer, strict=True)
        ]

    return measure(build([], base=Path(), functions=[reward]), CASES)


def probe(found: Measured, name: str) -> Tried:
    return next(tried for tried in found.tried if tried.probe.name == name)


@pytest.mark.parametrize(("share", "rows"), [(0.0, 0.0), (0.1, 0.0), (0.19, 0.0), (0.2, 1.0), (1.5, 1.0)])
def test_a_fifth_of_the_way_from_wrong_to_right_is_paid(share: float, rows: float) -> None:
    found = measured(share)
    empty = probe(found, "empty")
    assert worth(found, empty) == pytest.approx(share, abs=1e-12)
    assert paid(found, empty) == rows
    assert [pay.value for pay in pays(found, empty)] == [pytest.approx(-1 + 3 * share, abs=1e-12)] * 4
    assert {(pay.wrong, pay.right) for pay in pays(found, empty)} == {(-1.0, 2.0)}


def test_what_is_right_is_not_judged() -> None:
    found = measured(0.0)
    for name in ("decimal", "repeated"):
        assert (pays(found, probe(found, name)), worth(found, probe(found, name))) == ([], None)
        assert paid(found, probe(found, name)) is None


def test_a_list_is_compared_with_a_wrong_answer_of_its_own() -> None:
    """Half a point for off by one is honest, also where the list ends with that number."""

    def near(completions: list[str], answer: list[str]) -> list[float]:
        ends = [said.split()[-1] if said.split() else "" for said in completions]
        return [
            1 / (1 + abs(int(end) - int(gold))) if end.lstrip("-").isdigit() else 0.0
            for end, gold in zip(ends, answer, strict=True)
        ]

    found = measure(build([], base=Path(), functions=[near]), CASES)
    few = probe(found, "few_candidates")  # "20 or 21 or 22": 1 / (1 + 1)
    assert [(pay.value, pay.wrong, pay.right, pay.share) for pay in pays(found, few)] == [
        (0.5, 0.5, 1.0, 0.0)
    ] * 4
    # "18, 19, 20, 21, 22, 23, 24" ends 3 off: (1/4 - 1/2) / (1 - 1/2) = -1/2
    assert worth(found, probe(found, "candidates")) == pytest.approx(-0.5, abs=1e-12)


def test_a_leak_is_compared_with_the_same_reply_without_it() -> None:
    def searches(prompts: list[str], completions: list[str], answer: list[str]) -> list[float]:
        return [
            1.0 if said == gold else 0.1 + 0.3 * (f"is {gold}" in prompt) if said else 0.0
            for prompt, said, gold in zip(prompts, completions, answer, strict=True)
        ]

    found = measure(build([], base=Path(), functions=[searches]), CASES)
    # (0.4 - 0.1) / (1 - 0.1)
    assert worth(found, probe(found, "leaked")) == pytest.approx(1 / 3, abs=1e-12)
    assert paid(found, probe(found, "leaked")) == 1.0
    assert paid(found, probe(found, "unknown")) == 0.0


def test_without_right_answers_it_is_compared_with_plain_replies() -> None:
    def long(completions: list[str]) -> list[float]:
        return [min(len(said), 150) / 150 for said in completions]

    cases = [Case(place="a:0", prompt="p", columns={}, answer=None)]
    found = measure(build([], base=Path(), functions=[long]), cases)
    assert paid(found, probe(found, "very_long")) == 1.0
    assert paid(found, probe(found, "empty")) == 0.0
    assert worth(found, probe(found, "empty")) is None


def test_no_reward_is_no_pay() -> None:
    def sometimes(completions: list[str], answer: list[str]) -> list[float | None]:
        return [
            float(said == gold) if said.strip() else None
            for said, gold in zip(completions, answer, strict=True)
        ]

    found = measure(build([], base=Path(), functions=[sometimes]), CASES)
    assert [pay.share for pay in pays(found, probe(found, "empty"))] == [None] * 4
    assert paid(found, probe(found, "empty")) == 0.0
    assert worth(found, probe(found, "empty")) is None
