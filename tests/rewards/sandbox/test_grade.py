"""What grading says, and what it refuses."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from groupwise.errors import SandboxError
from groupwise.rewards.sandbox import Limits, cell, grade, pool
from groupwise.rewards.sandbox import isolation as ways_of
from groupwise.rewards.sandbox.grade import read_tests
from groupwise.rewards.sandbox.interpreter import find_interpreter
from tests.rewards.sandbox.conftest import ways

SQUARE = "def sq(n):\n    return n * n\n"


@pytest.mark.parametrize("isolation", ways(), indirect=True)
class TestGrades:
    def test_the_failing_assert_is_named(self, isolation: Any) -> None:
        given = grade(SQUARE, "assert sq(2) == 4\nassert sq(3) == 8", isolation=isolation)
        assert (given.outcome, given.passed, given.total) == ("fail", 1, 2)
        assert given.detail == "line 2: assert sq(3) == 8: AssertionError"

    def test_all_tests_are_counted_where_asked(self, isolation: Any) -> None:
        tests = "assert sq(2) == 4\nassert sq(3) == 8\nassert sq(4) == 16\ndef test_five():\n    assert sq(5) == 25"
        given = grade(SQUARE, tests, isolation=isolation, stop=False)
        assert (given.outcome, given.passed, given.total) == ("fail", 3, 4)
        cases = [{"stdin": str(n), "stdout": str(4)} for n in (2, 3, 2, 4)]
        given = grade("print(int(input()) ** 2)", cases, isolation=isolation, stop=False)
        assert (given.outcome, given.passed, given.total) == ("fail", 2, 4)

    def test_a_name_that_is_not_there(self, isolation: Any) -> None:
        given = grade("def square(n): return n * n", "assert sq(2) == 4", isolation=isolation)
        assert given.outcome == "error"
        assert "NameError" in given.detail
        given = grade("pass", [{"args": [1], "expected": 1}], entry_point="sq", isolation=isolation)
        assert given.detail == "case 0: NameError: the program has no 'sq'"

    @pytest.mark.parametrize(
        "tests",
        [
            "",
            "  \n",
            [],
            "# nothing",
            "pass",
            "assert True",
            "sq(2)",
            "x = 1",
            "import math",
            "assert sq( == 4",
        ],
    )
    def test_tests_that_check_nothing_never_pass(self, tests: Any, isolation: Any) -> None:
        given = grade(SQUARE, tests, isolation=isolation)
        assert given.outcome == "error"
        assert given.nothing_tested

    def test_a_method_of_a_class(self, isolation: Any) -> None:
        program = "class Solution:\n    def twice(self, n): return 2 * n"
        cases = [{"args": [3], "expected": 6}]
        assert grade(program, cases, entry_point="Solution.twice", isolation=isolation).outcome == "pass"
        assert grade(program, cases, entry_point="Solution.half", isolation=isolation).outcome == "error"
        # As LeetCode's rows name it, and as LeetCode's own check(candidate) is given it.
        check = f"def check(candidate):\n    assert candidate({cases[0]['args'][0]!r}) == {cases[0]['expected']!r}"
        for name in ("twice", "Solution().twice"):
            assert grade(program, cases, entry_point=name, isolation=isolation).outcome == "pass"
            assert grade(program, check, entry_point=name, isolation=isolation).outcome == "pass"
        missing = grade(program, cases, entry_point="half", isolation=isolation)
        assert (missing.outcome, "the program has no 'half'" in missing.detail) == ("error", True)

    def test_tests_that_are_no_python(self, isolation: Any) -> None:
        given = grade(SQUARE, "assert sq(2 ==", isolation=isolation)
        assert given.outcome == "error"
        assert "SyntaxError" in given.detail

    def test_the_program_sees_neither_tests_nor_expected_output(self, isolation: Any) -> None:
        looks = (
            "import os, sys, glob\n"
            "def sq(n):\n"
            "    seen = []\n"
            "    for folder in ('.', '/tmp', '/sandbox', '/proc/self/fd', '/dev/shm'):\n"
            "        for place, _, files in os.walk(folder):\n"
            "            for name in files:\n"
            "                try:\n"
            "                    with open(os.path.join(place, name), 'rb') as f: seen.append(f.read(10**6))\n"
            "                except OSError: pass\n"
            "    return any(('740' + '88').encode() in text for text in seen)\n"
        )
        assert (
            grade(looks, "assert sq(42) == 74088 or sq(42) is False", isolation=isolation).outcome == "pass"
        )

    def test_the_same_grade_each_time_also_over_sets(self, isolation: Any) -> None:
        program = "def order(): return list({'a', 'b', 'c', 'd', 'e', 'f'})\n"
        outcomes = {grade(program, "assert order()[0] == 'a'", isolation=isolation).outcome for _ in range(4)}
        pool.close_pools()
        outcomes |= {grade(program, "assert order()[0] == 'a'", isolation=isolation).outcome}
        assert len(outcomes) == 1

    def test_many_at_once_from_threads(self, isolation: Any) -> None:
        def one(i: int) -> str:
            wrong = i % 3 == 0
            return grade(
                f"def f(n): return n + {int(wrong)}", "assert f(2) == 2", isolation=isolation
            ).outcome

        with ThreadPoolExecutor(6) as threads:
            assert list(threads.map(one, range(18))) == ["fail" if i % 3 == 0 else "pass" for i in range(18)]

    def test_a_large_input_and_a_large_result(self, isolation: Any) -> None:
        program = "import sys\nprint(sum(map(int, sys.stdin.read().split())))"
        case = [{"stdin": "1 " * 200_000, "stdout": "200000"}]
        assert grade(program, case, isolation=isolation).outcome == "pass"
        assert grade(
            "def f(n): return list(range(n))", "assert sum(f(200_000)) == 19999900000", isolation=isolation
        )


@pytest.mark.parametrize(
    ("tests", "entry_point", "mode"),
    [
        ("assert f(1) == 1", None, "asserts"),
        (["assert f(1) == 1", "assert f(2) == 2"], None, "asserts"),
        ("[1, 2]\nassert f(1) == 1", None, "asserts"),  # begins like JSON and is none
        ([{"stdin": "1", "stdout": "2"}], None, "script"),
        ({"stdin": None, "stdout": "2"}, None, "script"),
        ('[{"stdin": "1", "stdout": "2"}]', None, "script"),
        ([{"args": [1], "expected": 2}], "f", "functions"),
        ([{"function": "f", "kwargs": {"a": 1}, "expected": None}], None, "functions"),
        ('{"function": "f", "args": [1], "expected": 2}', None, "functions"),
    ],
)
def test_the_forms_of_tests(tests: Any, entry_point: str | None, mode: str) -> None:
    assert read_tests(tests, entry_point).mode == mode


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        (3, "Python source or a list, not 3"),
        (b"assert True", "Python source or a list"),
        ([1, 2], "either texts or mappings"),
        (["assert f()", {"stdin": "", "stdout": ""}], "either texts or mappings"),
        ([{"input": "1", "output": "2"}], "one of these has input, output"),
        ([{"stdin": 1, "stdout": "2"}], "stdin and stdout are texts"),
        ([{"stdin": "1", "stdout": 2}], "stdin and stdout are texts"),
        ([{"args": [1], "expected": 2}], "in the column entry_point"),
        ([{"function": "f", "args": 1, "expected": 2}], "args is a list"),
        ([{"function": "f", "args": [], "kwargs": [], "expected": 2}], "kwargs a mapping"),
    ],
)
def test_tests_of_no_known_form(tests: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_tests(tests)


@pytest.fixture
def _forgotten() -> Any:
    """What was found out about this machine is found out anew, before and after."""
    remembered = (ways_of._bwrap, cell.private_user, cell._restricted_works)
    pool.close_pools()
    for one in remembered:
        one.cache_clear()
    yield
    pool.close_pools()
    for one in remembered:
        one.cache_clear()


@pytest.mark.usefixtures("_forgotten")
class TestWithoutIsolation:
    """Never the plain host by accident."""

    def test_no_bubblewrap_is_said_with_the_remedy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shutil, "which", lambda name: None)
        with pytest.raises(SandboxError, match=r"apt-get install bubblewrap.*isolation: restricted"):
            grade(SQUARE, "assert sq(2) == 4")

    def test_a_bubblewrap_that_does_not_work_is_said_with_what_it_said(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
    ) -> None:
        broken = tmp_path / "bwrap"
        broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
        broken.chmod(0o755)
        monkeypatch.setattr(shutil, "which", lambda name: str(broken))
        with pytest.raises(SandboxError, match=r"No permissions to create new namespace.*user namespaces"):
            grade(SQUARE, "assert sq(2) == 4")

    def test_a_bubblewrap_that_isolates_nothing_is_not_believed(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
    ) -> None:
        silent = tmp_path / "bwrap"
        silent.write_text("#!/bin/sh\nexit 0\n")
        silent.chmod(0o755)
        monkeypatch.setattr(shutil, "which", lambda name: str(silent))
        with pytest.raises(SandboxError, match="ended without a word"):
            grade(SQUARE, "assert sq(2) == 4")

    def test_the_weaker_mode_needs_a_known_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ways_of.platform, "machine", lambda: "riscv64")
        with pytest.raises(SandboxError, match="x86_64 and aarch64, and this is riscv64"):
            grade(SQUARE, "assert sq(2) == 4", isolation="restricted")


@pytest.mark.parametrize(
    ("python", "said"),
    [("/nowhere/python", "does not run as a Python interpreter"), ("/bin/true", "does not run as a Python")],
)
def test_an_interpreter_that_is_none(python: str, said: str) -> None:
    with pytest.raises(SandboxError, match=said):
        find_interpreter(python)


@pytest.mark.parametrize("isolation", ways(), indirect=True)
def test_cells_are_used_again_and_replaced_in_time(isolation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pool.close_pools()
    monkeypatch.setattr(pool, "_MOST_JOBS", 3)
    started = []
    before = cell.Cell.__init__

    def counting(self: Any, *arguments: Any, **keywords: Any) -> None:
        started.append(threading.get_ident())
        before(self, *arguments, **keywords)

    monkeypatch.setattr(cell.Cell, "__init__", counting)
    for _ in range(6):
        assert grade(SQUARE, "assert sq(2) == 4", isolation=isolation).outcome == "pass"
    assert len(started) == 4  # two at a time, three jobs each
    assert len(set(started)) == 1  # all by the pool's own thread, which lives as long as they do


@pytest.mark.parametrize("isolation", ways(), indirect=True)
def test_a_sandbox_that_has_waited_too_long_is_ended(isolation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pool.close_pools()
    monkeypatch.setattr(pool, "_IDLE_SECONDS", 0.05)
    assert grade(SQUARE, "assert sq(2) == 4", isolation=isolation).outcome == "pass"
    made = pool.pool_for(isolation, None, Limits().disk_mb)
    for _ in range(500):
        if not made._idle:
            break
        threading.Event().wait(0.02)
    assert not made._idle
    assert grade(SQUARE, "assert sq(2) == 4", isolation=isolation).outcome == "pass"
