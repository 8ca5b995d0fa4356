import json
from pathlib import Path

import pytest

from groupwise.rewards.scorers.math_answer import math_answer
from tests.rewards.mathematics.variants import RIGHT, UNREADABLE, WRONG

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "cases.jsonl").read_text(encoding="utf-8").splitlines()
]
NEIGHBOURS = [
    json.loads(line)
    for line in (Path(__file__).parent / "neighbours.jsonl").read_text(encoding="utf-8").splitlines()
]
"""Answers like those of `CASES`, whose verdict was settled before any was run."""
REFUSED_RIGHT = frozenset({"M241"})
"""Right ones that are refused, each argued in docs/rewards/math_answer.md; this one is debatable."""


def test_no_wrong_case_is_paid_and_no_right_one_refused() -> None:
    scores = math_answer([c["answer_text"] for c in CASES], [c["gold"] for c in CASES])
    paid = [c["id"] for c, s in zip(CASES, scores, strict=True) if s == 1.0 and not c["correct"]]
    refused = {c["id"] for c, s in zip(CASES, scores, strict=True) if s != 1.0 and c["correct"]}
    assert paid == []
    assert refused == REFUSED_RIGHT
    # The one row without a gold is skipped, not scored.
    assert [c["id"] for c, s in zip(CASES, scores, strict=True) if s is None] == ["M288"]


@pytest.mark.parametrize("right", [True, False])
def test_their_neighbours(right: bool) -> None:
    rows = [row for row in NEIGHBOURS if row["right"] is right]
    assert len(rows) > 400
    scores = math_answer([row["said"] for row in rows], [row["gold"] for row in rows])
    assert [row for row, score in zip(rows, scores, strict=True) if score != float(right)] == []


@pytest.mark.parametrize("kind", RIGHT)
def test_what_a_teacher_calls_right(kind: str) -> None:
    rows = RIGHT[kind]
    scores = math_answer([said for _, said in rows], [gold for gold, _ in rows])
    assert [row for row, score in zip(rows, scores, strict=True) if score != 1.0] == []


@pytest.mark.parametrize("kind", WRONG)
def test_what_must_not_be_paid(kind: str) -> None:
    rows = WRONG[kind]
    scores = math_answer([said for _, said in rows], [gold for gold, _ in rows])
    assert [row for row, score in zip(rows, scores, strict=True) if score != 0.0] == []


def test_every_right_kind_has_its_wrong_ones() -> None:
    assert RIGHT.keys() == WRONG.keys()
    assert sum(len(rows) for rows in RIGHT.values()) > 400
    assert sum(len(rows) for rows in WRONG.values()) > 400


@pytest.mark.parametrize("gold", UNREADABLE)
def test_a_gold_that_cannot_be_read_pays_nobody(gold: str) -> None:
    assert math_answer(["5", "", gold, r"\boxed{5}"], [gold] * 4) == [None] * 4


@pytest.mark.parametrize("kind", RIGHT)
def test_every_gold_equals_itself_in_a_box(kind: str) -> None:
    golds = list(dict.fromkeys(gold for gold, _ in RIGHT[kind] if "####" not in gold and "boxed" not in gold))
    golds = [gold for gold in golds if "answer is" not in gold]
    scores = math_answer([rf"So it is $\boxed{{{gold}}}$." for gold in golds], golds)
    assert [gold for gold, score in zip(golds, scores, strict=True) if score != 1.0] == []
