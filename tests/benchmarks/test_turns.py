"""Two processes that take turns."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.facts import environment
from benchmarks.turns import Side, SideError

ROOT = Path(__file__).parents[2]


def side(name: str, folder: Path) -> Side:
    command = [sys.executable, "-m", "tests.benchmarks.player", name]
    return Side(name, command, env=environment(1), cwd=ROOT, log=folder / "logs" / f"{name}.txt")


def test_each_side_answers_its_own_requests_in_order(tmp_path: Path) -> None:
    with side("one", tmp_path) as one, side("two", tmp_path) as two:
        told = [s.ask(what, given=[1]) for s, what in ((one, "a"), (two, "b"), (two, "c"), (one, "d"))]
    assert [(t["name"], t["asked"], t["did"]) for t in told] == [
        ("one", 1, "a"),
        ("two", 1, "b"),
        ("two", 2, "c"),
        ("one", 2, "d"),
    ]
    assert told[0]["given"] == [1]
    assert one.process.returncode == two.process.returncode == 0  # both saw the end of their requests
    assert one.log.read_text().count("prints what it likes") == 2


def test_a_side_that_dies_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    message = r"one ended with code 1 when asked to die; .*one\.txt says:\n[\s\S]*out of memory, say"
    with side("one", tmp_path) as one:
        one.ask("a")
        with pytest.raises(SideError, match=message):
            one.ask("die")


def test_the_other_sides_end_with_the_one_that_failed(tmp_path: Path) -> None:
    with pytest.raises(SideError, match="ended"), side("two", tmp_path) as two:
        fail(two, tmp_path)
    assert two.process.returncode is not None


def fail(two: Side, tmp_path: Path) -> None:
    two.ask("a")
    with side("one", tmp_path) as one:
        one.ask("die")
