from __future__ import annotations

import pytest

from groupwise.rewards.sandbox import syntax
from groupwise.rewards.sandbox.inside.syntax import is_program
from groupwise.rewards.sandbox.syntax import are_programs


@pytest.mark.parametrize(
    ("source", "right"),
    [
        ("def f():\n    return 1\n", True),
        ("print(1)", True),
        ("x = 1", True),
        ("async def f():\n    await g()", True),
        ("match x:\n    case 1: pass", True),
        ("", False),
        ("# a comment", False),
        ("'''A text.'''", False),
        ("42", False),
        ("Yes", False),
        ("def f(:", False),
        ("return 1", False),  # parses, but does not compile
        ("break", False),
        ("Here is the code:", False),
        ("\x00", False),
        ("x = " + "9" * 10_000, False),  # more digits than Python reads
        ("(" * 100_000, False),
        ("-" * 100_000 + "1", False),
        ("a." * 50_000 + "a", False),
    ],
)
def test_what_is_a_program(source: str, right: bool) -> None:
    assert are_programs([source]) == [right]


def test_the_answers_stay_in_order_when_one_ends_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    before = syntax._as_far_as_it_goes
    calls: list[int] = []

    def ends_at_the_second(sources: list[str], python: str | None) -> list[bool]:
        calls.append(len(sources))
        return before(sources[:1], python) if len(calls) == 1 else before(sources, python)

    monkeypatch.setattr(syntax, "_as_far_as_it_goes", ends_at_the_second)
    assert are_programs(["print(1)", "print(2)", "print(", "print(4)"]) == [True, False, False, True]
    assert calls == [4, 2]


def test_nothing_is_run(tmp_path: object) -> None:
    assert are_programs([f"open({str(tmp_path) + '/x'!r}, 'w')"]) == [True]
    import os

    assert os.listdir(str(tmp_path)) == []


def test_very_long_sources_are_not_looked_at() -> None:
    assert are_programs(["x = 1\n" * 200_000, "x = 1"]) == [False, True]
    assert are_programs([]) == []


def test_what_does_something() -> None:
    assert is_program("f(1)")
    assert not is_program("f\n1\n'a'")
