from typing import Any

import pytest

from groupwise.rewards.scorers.exact import exact


@pytest.mark.parametrize(
    ("completion", "answer", "score"),
    [
        ("Paris", "Paris", 1.0),
        (" Paris\n", "Paris ", 1.0),
        ("paris", "Paris", 0.0),
        ("Paris.", "Paris", 0.0),
        ("It is Paris", "Paris", 0.0),
        ("", "Paris", 0.0),
        ("42", 42, 1.0),
        ("420", 42, 0.0),
        ("cafe\u0301", "caf\u00e9", 1.0),
        ([{"role": "assistant", "content": "Paris"}], "Paris", 1.0),
        ("", "", None),
        ("anything", " \n", None),
        ("None", None, None),
    ],
)
def test_hand_worked(completion: Any, answer: Any, score: float | None) -> None:
    assert exact([completion], [answer]) == [score]


def test_settings() -> None:
    assert exact(["STRASSE", "Paris"], ["straße", "Rome"], ignore_case=True) == [1.0, 0.0]
    assert exact(["First Rome.\n\nParis \n", "Paris\nRome"], ["Paris", "Paris"], last_line=True) == [1.0, 0.0]


@pytest.mark.parametrize("answer", [True, 4.0, ["Paris"]])
def test_an_answer_that_is_no_text_is_an_error(answer: Any) -> None:
    with pytest.raises(TypeError, match="the answer column holds"):
        exact(["Paris"], [answer])
