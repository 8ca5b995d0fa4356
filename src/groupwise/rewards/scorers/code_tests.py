"""Whether a program does what its tests ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le

from groupwise.rewards.sandbox.batch import grade_all, settle


def code_tests(
    completions: Sequence[Any],
    tests: Sequence[Any],
    entry_point: Sequence[Any] | None = None,
    *,
    credit: Literal["all", "share"] = "all",
    isolation: Literal["bubblewrap", "restricted"] = "bubblewrap",
    python: str | None = None,
    seconds: Annotated[float, Gt(0), Le(3600)] = 10.0,
    memory_mb: Annotated[int, Ge(32), Le(1 << 20)] = 512,
    processes: Annotated[int, Ge(1), Le(4096)] = 64,
    output_kb: Annotated[int, Ge(1), Le(1 << 14)] = 1024,
    disk_mb: Annotated[int, Ge(1), Le(1 << 16)] = 64,
    tolerance: Annotated[float, Ge(0)] = 0.0,
    workers: Annotated[int, Ge(1), Le(256)] | None = None,
) -> list[float | None]:
    """1 when the program in the completion passes all of its tests, 0 when not; under `credit: share`, their share.

    The program is the last fenced block of Python, or the whole text where there is no block (the exact order is in
    `rewards/sandbox/extract.py`). It runs in a sandbox, and its tests run in another, so that it can neither read nor
    change them, nor forge what they say: they call its functions over a socket and compare plain data. A crash, an
    early exit, a time-out or too much of anything never passes.

    Tests are, per row: Python source with asserts, test functions or unittest classes; or a list of such lines; or a
    list of `{"stdin": ..., "stdout": ...}`, for which the program runs as a script; or a list of `{"args": [...],
    "expected": ...}` with the function's name under `function` or in the column `entry_point`. Lists may be JSON in a
    text. docs/rewards/sandbox.md describes them, and what the sandbox does not keep out.

    Edge cases: a row whose tests are None gives None. Tests that check nothing of the program score 0, and a warning
    says so. An empty completion scores 0. Expected output that is empty is met by a script that ends well and writes
    nothing, not by one that fails.

    Args:
        completions: text or messages, [N].
        tests: see above, [N].
        entry_point: the function that the tests are about, or None, [N].
        credit: `all` for all or nothing, `share` for tests that held / tests.
        isolation: `bubblewrap`, or the weaker mode `restricted`, which needs nothing installed.
        python: interpreter to run with, site packages included; None for this one with the standard library alone.
        seconds: wall time for a program with all of its tests.
        memory_mb: memory of all its processes together, in MiB.
        processes: processes and threads together.
        output_kb: what a script may write to each stream per case, in KiB.
        disk_mb: files it may write, in MiB.
        tolerance: by how much numbers may differ in function cases and outputs, absolutely or relatively.
        workers: programs at a time; None for as many as there are processors.

    Raises:
        SandboxError: this machine cannot isolate programs in this way; said with the configuration, not later.
        ValueError: a row's tests have none of these forms.
    """
    how = settle(
        isolation=isolation,
        python=python,
        seconds=seconds,
        memory_mb=memory_mb,
        processes=processes,
        output_kb=output_kb,
        disk_mb=disk_mb,
        tolerance=tolerance,
        workers=workers,
    )
    grades = grade_all(completions, tests, entry_point, how, stop=credit == "all")
    scores: list[float | None] = []
    for grade in grades:
        if grade is None:
            scores.append(None)
        elif credit == "all" or not grade.total or grade.outcome == "pass":
            scores.append(float(grade.outcome == "pass"))
        else:
            scores.append(grade.passed / grade.total)
    return scores
