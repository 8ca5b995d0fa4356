"""Grades a program: runs it against its tests in isolation and says what came of it."""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from groupwise.rewards.sandbox.cell import Cell, GoneError, LateError
from groupwise.rewards.sandbox.inside.tests import NOTHING_CHECKED, UNPARSABLE
from groupwise.rewards.sandbox.isolation import Isolation
from groupwise.rewards.sandbox.limits import Limits
from groupwise.rewards.sandbox.outputs import same_output
from groupwise.rewards.sandbox.pool import Pool, pool_for

NO_TESTS = "there are no tests"
NO_PROGRAM = "there is no program"
Outcome = Literal["pass", "fail", "error", "timeout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What came of one program."""

    outcome: Outcome
    """`pass`: every test held. `fail`: one did not. `error`: the program or a test raised or ended, used too much, or
    nothing was tested. `timeout`: it took too long."""
    passed: int = 0
    """Tests that held."""
    total: int = 0
    """Tests that were run or, where their number is known beforehand, all."""
    detail: str = ""
    """Why it is no pass, for a person."""

    @property
    def nothing_tested(self) -> bool:
        """True where the fault is the tests': there are none, they do not parse, or check nothing of the program."""
        return self.detail in (NO_TESTS, NOTHING_CHECKED) or self.detail.startswith(UNPARSABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """Tests in one of their three forms."""

    mode: Literal["asserts", "script", "functions"]
    """Python source; inputs and outputs of a script; calls and what they give."""
    source: str = ""
    """For `asserts`."""
    cases: tuple[Mapping[str, Any], ...] = ()
    """For the others: `stdin` and `stdout`, or `function`, `args`, `kwargs` and `expected`."""


def read_tests(tests: Any, entry_point: str | None = None) -> Tests:
    """Tests as a row of data has them.

    Python source, or a list of such lines; a list of `{"stdin": ..., "stdout": ...}`; a list of `{"args": [...],
    "expected": ...}` with the name under `function` or in `entry_point`, where `Class.method` stands for a method of an
    object made without arguments, and a name that the program has not for a method of its `Solution`. The lists may
    also be JSON in a text.

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(tests, str):
        found = _json_list(tests)
        if found is None:
            return Tests(mode="asserts", source=tests)
        tests = found
    if isinstance(tests, Mapping):
        tests = [tests]
    if not isinstance(tests, Sequence) or isinstance(tests, bytes):
        raise ValueError(f"tests are Python source or a list, not {tests!r:.60}")
    if all(isinstance(one, str) for one in tests):
        return Tests(mode="asserts", source="\n".join(tests))
    if not all(isinstance(one, Mapping) for one in tests):
        raise ValueError(f"a list of tests holds either texts or mappings, not {tests!r:.60}")
    if all("stdout" in one for one in tests):
        return Tests(mode="script", cases=tuple(_script_case(one) for one in tests))
    if all("expected" in one for one in tests):
        return Tests(mode="functions", cases=tuple(_function_case(one, entry_point) for one in tests))
    raise ValueError(
        f"a test is {{stdin, stdout}} or {{args, expected}}, but one of these has {', '.join(map(str, tests[0]))}"
    )


def _json_list(text: str) -> list[Any] | None:
    if not text.lstrip().startswith(("[", "{")):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else [found] if isinstance(found, dict) else None


def _script_case(one: Mapping[str, Any]) -> dict[str, Any]:
    given, wanted = one.get("stdin"), one["stdout"]
    if not isinstance(given, str | None) or not isinstance(wanted, str | None):
        raise ValueError(f"stdin and stdout are texts, not {given!r:.40} and {wanted!r:.40}")
    return {"stdin": given or "", "stdout": wanted or ""}


def _function_case(one: Mapping[str, Any], entry_point: str | None) -> dict[str, Any]:
    function = one.get("function") or entry_point
    if not isinstance(function, str) or not function:
        raise ValueError("a test with args names its function, or the row does in the column entry_point")
    args, kwargs = one.get("args", []), one.get("kwargs", {})
    if not isinstance(args, list | tuple) or not isinstance(kwargs, Mapping):
        raise ValueError(f"args is a list and kwargs a mapping, not {args!r:.40} and {kwargs!r:.40}")
    return {"function": function, "args": list(args), "kwargs": dict(kwargs), "expected": one["expected"]}


def grade(
    program: str,
    tests: Any,
    *,
    entry_point: str | None = None,
    limits: Limits | None = None,
    isolation: Isolation = "bubblewrap",
    python: str | None = None,
    stop: bool = True,
    tolerance: float = 0.0,
) -> Grade:
    """Run one program against its tests.

    Args:
        program: Python source.
        tests: in one of the forms that `read_tests` takes.
        entry_point: the function that function cases call, and that HumanEval's `check` is given.
        limits: what it may use.
        isolation: how it is kept apart.
        python: the interpreter; None for the one that runs this, without site packages.
        stop: end at the first test that does not hold; False to count them all.
        tolerance: by how much numbers may differ in function cases and outputs, absolutely or relatively.

    Raises:
        SandboxError: this machine cannot isolate programs in this way.
        ValueError: the tests have none of the forms.
    """
    limits = limits or Limits()
    asked = read_tests(tests, entry_point)
    if not asked.source.strip() and not asked.cases:
        return Grade(outcome="error", detail=NO_TESTS)
    if not program.strip():
        return Grade(outcome="error", detail=NO_PROGRAM)
    if len(program) > 1_000_000:
        return Grade(outcome="error", detail=f"the program has {len(program)} characters")
    pool = pool_for(isolation, python, limits.disk_mb)
    if asked.mode == "script":
        return _script(pool, program, asked, limits, stop, tolerance)
    return _judged(pool, program, asked, limits, stop, tolerance, entry_point)


def _judged(
    pool: Pool,
    program: str,
    tests: Tests,
    limits: Limits,
    stop: bool,
    tolerance: float,
    entry_point: str | None,
) -> Grade:
    """The tests run in one sandbox, the program in another, and what the tests say comes over the first's socket."""
    secret = secrets.token_hex(16)
    job = {
        "role": "judge",
        "secret": secret,
        "limits": limits.told(),
        "mode": tests.mode,
        "program": program,
        "tests": tests.source if tests.mode == "asserts" else [dict(case) for case in tests.cases],
        "entry_point": entry_point,
        "stop": stop,
        "tolerance": tolerance,
    }
    ours, theirs = socket.socketpair()
    with ours, theirs, pool.cell(limits) as cell, pool.cell(limits) as judge:
        deadline = time.monotonic() + limits.seconds
        try:
            cell.send({"role": "program", "limits": limits.told()}, ours)
            judge.send(job, theirs)
            ours.close()
            theirs.close()
            said = judge.receive(deadline)
        except LateError:
            cell.kill()
            judge.kill()
            return Grade(outcome="timeout", total=len(tests.cases), detail=_late(limits))
        except GoneError:
            judge.kill()
            return _error(cell.over or judge.over or "the tests' process ended", tests)
        verdict = said[1] if isinstance(said, tuple) and said[0] == secret else None
        if verdict is None:
            return _error(
                judge.over or "the tests ended before they gave a verdict, or used more than they may", tests
            )
        if cell.over is not None and verdict["outcome"] != "pass":
            return _error(cell.over, tests)
        total = max(len(tests.cases), verdict["total"])
        return Grade(
            outcome=verdict["outcome"], passed=verdict["passed"], total=total, detail=verdict["detail"]
        )


def _late(limits: Limits) -> str:
    return f"it took more than {limits.seconds:g} s"


def _error(detail: str, tests: Tests) -> Grade:
    return Grade(outcome="error", total=len(tests.cases), detail=detail)


def _script(pool: Pool, program: str, tests: Tests, limits: Limits, stop: bool, tolerance: float) -> Grade:
    """The program runs once per input; expected outputs stay here."""
    first: Grade | None = None
    passed = 0
    job = {
        "role": "script",
        "limits": limits.told(),
        "program": program,
        "inputs": [case["stdin"].encode("utf-8", "replace") for case in tests.cases],
        "output_bytes": limits.output_kb << 10,
    }
    with pool.cell(limits) as cell:
        deadline = time.monotonic() + limits.seconds
        try:
            cell.send(job)
            for i, case in enumerate(tests.cases):
                one = _case(cell, deadline, i, case["stdout"], tolerance)
                passed += one.outcome == "pass"
                if one.outcome != "pass":
                    first = first or one
                    if stop:
                        break
        except LateError:
            cell.kill()
            first = first or Grade(outcome="timeout", detail=_late(limits))
        except GoneError:
            first = first or Grade(outcome="error", detail=cell.over or "its process ended")
    return Grade(
        outcome=first.outcome if first else "pass",
        passed=passed,
        total=len(tests.cases),
        detail=first.detail if first else "",
    )


def _case(cell: Cell, deadline: float, i: int, expected: str, tolerance: float) -> Grade:
    try:
        number, ended, status, output, errors = cell.receive(deadline)
        given, told = output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")
    except (TypeError, ValueError, AttributeError):
        raise GoneError from None
    if number != i:
        raise GoneError
    if ended == "output":
        return Grade(outcome="error", detail=f"case {i}: it wrote more than it may")
    if ended != "exit":
        raise GoneError
    if status == -24:  # SIGXCPU
        return Grade(outcome="timeout", detail=f"case {i}: it took too much processor time")
    if status != 0:
        last = " ".join(told.strip().splitlines()[-1:])[-200:]
        how = (
            f"ended with status {status}"
            if isinstance(status, int) and status > 0
            else f"died by signal {status}"
        )
        return Grade(outcome="error", detail=f"case {i}: it {how}: {last}")
    if not same_output(given, expected, tolerance=tolerance):
        return Grade(outcome="fail", detail=f"case {i}: it wrote {given[:80]!r}, not {expected[:80]!r}")
    return Grade(outcome="pass")
