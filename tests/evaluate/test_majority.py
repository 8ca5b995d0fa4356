from __future__ import annotations

import pytest

from groupwise.evaluate.majority import answers_of, vote
from tests.evaluate.examples import group_of


@pytest.mark.parametrize(
    ("answers", "passed", "chance"),
    [
        (["4", "4", "5"], [True, True, False], 1.0),
        (["4", "5", "5"], [True, False, False], 0.0),
        (["4", "4", "5", "5", "6"], [True, True, False, False, False], 0.5),  # drawn by lot
        (["4", None, None, None], [True, False, False, False], 1.0),  # no answer, no vote
        ([None, None], [True, True], 0.0),
        (["4", "4", "4"], [True, False, True], 2 / 3),  # alike answers that are judged differently
    ],
)
def test_who_wins(answers: list[str | None], passed: list[bool], chance: float) -> None:
    assert vote(answers, passed) == pytest.approx(chance)


def test_equal_answers_vote_together() -> None:
    texts = [
        "Half of it: \\boxed{\\frac12}",
        "#### 0.5",
        "so the answer is 50%",
        "I get 1/2.",
        "It is 2.",
        "",
    ]
    assert answers_of(group_of(texts)) == ["1/2", "1/2", "1/2", "1/2", "2", None]


def test_words_vote_by_the_last_line() -> None:
    assert answers_of(group_of(["I think so.\n**Yes**", "yes!", "no"])) == ["yes", "yes", "no"]
