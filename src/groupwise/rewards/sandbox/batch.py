"""Grades many completions at once."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from groupwise.rewards.completions import text_of
from groupwise.rewards.sandbox.cell import check
from groupwise.rewards.sandbox.extract import extract_code
from groupwise.rewards.sandbox.grade import Grade, grade
from groupwise.rewards.sandbox.isolation import Isolation
from groupwise.rewards.sandbox.limits import Limits

_log = logging.getLogger(__name__)
_told: set[str] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How programs are graded, the same for all of a batch."""

    isolation: Isolation
    """How they are kept apart."""
    python: str | None
    """The interpreter."""
    limits: Limits
    """What each may use."""
    tolerance: float
    """By how much numbers may differ."""
    workers: int
    """Programs at a time."""


def settle(
    *,
    isolation: Isolation,
    python: str | None,
    tolerance: float = 0.0,
    workers: int | None = None,
    **limits: Any,
) -> How:
    """The settings of a scorer as one, after finding out whether this machine can isolate programs so.

    Raises:
        SandboxError: it cannot; with the remedy.
    """
    check(isolation, python)
    if isolation == "restricted" and "restricted" not in _told:
        _told.add("restricted")
        _log.warning(
            "programs are graded in the weaker mode, isolation: restricted; docs/rewards/sandbox.md says what it does "
            "not keep out"
        )
    return How(
        isolation=isolation,
        python=python,
        limits=Limits(**limits),
        tolerance=tolerance,
        workers=workers or len(os.sched_getaffinity(0)),
    )


def grade_all(
    completions: Sequence[Any],
    tests: Sequence[Any],
    entry_points: Sequence[Any] | None,
    how: How,
    *,
    stop: bool,
) -> list[Grade | None]:
    """One grade per completion, in order; None where a row has no tests.

    Args:
        completions: text or messages, [N].
        tests: in one of the forms of `read_tests`, or None, [N].
        entry_points: the function that the tests are about, or None, [N].
        how: limits and isolation.
        stop: end a program at its first test that does not hold.

    Raises:
        SandboxError: a sandbox does not come up.
        ValueError: tests have none of the forms.
    """

    def one(i: int) -> Grade | None:
        if tests[i] is None:
            return None
        return grade(
            extract_code(text_of(completions[i])),
            tests[i],
            entry_point=None if entry_points is None else entry_points[i],
            limits=how.limits,
            isolation=how.isolation,
            python=how.python,
            stop=stop,
            tolerance=how.tolerance,
        )

    if not len(completions):
        return []
    with ThreadPoolExecutor(min(how.workers, len(completions)), thread_name_prefix="groupwise-grade") as pool:
        grades = list(pool.map(one, range(len(completions))))
    vacuous = [i for i, given in enumerate(grades) if given is not None and given.nothing_tested]
    if vacuous:
        _log.warning(
            "the tests of %d of %d rows check nothing of the program and score 0; the first: %.80r (%s)",
            len(vacuous),
            len(grades),
            tests[vacuous[0]],
            grades[vacuous[0]].detail,  # type: ignore[union-attr]
        )
    return grades
