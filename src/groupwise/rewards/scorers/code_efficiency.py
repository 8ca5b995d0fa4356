"""How the work of a program grows with the size of its input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, MinLen

from groupwise.rewards.completions import text_of
from groupwise.rewards.sandbox.batch import How, grade_all, settle
from groupwise.rewards.sandbox.extract import extract_code
from groupwise.rewards.sandbox.growth import Growth, growth_value, measure_growth


def code_efficiency(
    completions: Sequence[Any],
    tests: Sequence[Any],
    entry_point: Sequence[Any],
    workload: Sequence[Any],
    exponent: Sequence[Any] | None = None,
    *,
    sizes: Annotated[tuple[int, ...], MinLen(3)] = (1000, 2000, 4000, 8000, 16000),
    usual_exponent: Annotated[float, Ge(0), Le(10)] = 1.0,
    slack: Annotated[float, Ge(0), Le(2)] = 0.4,
    repeats: Annotated[int, Ge(1), Le(100)] = 3,
    isolation: Literal["bubblewrap", "restricted"] = "bubblewrap",
    python: str | None = None,
    seconds: Annotated[float, Gt(0), Le(3600)] = 20.0,
    memory_mb: Annotated[int, Ge(32), Le(1 << 20)] = 512,
    tolerance: Annotated[float, Ge(0)] = 0.0,
) -> list[float | None]:
    """1 when a right program's processor time grows no faster than size^exponent, falling to 0 at size^(exponent + 1).

    value = clamp(1 - (measured - exponent - slack), 0, 1) for a program that passes its tests, and 0 for any other.
    `measured` is the slope of log time over log size, fitted to the four largest sizes that take 2 ms or more.

    The basis is processor time of the program's process, which the host reads from outside between the calls; it is not
    a count of instructions. It does not depend on what else waits for the machine, but it repeats to some hundredths
    of an exponent only, to some tenths where caches or neighbours interfere; `slack` is for that, and for the logarithm
    in n log n (0.1 between a thousand and ten thousand). Programs are measured one at a time.

    The column `workload` holds Python with `arguments(size)`, which returns the tuple that the function is called with,
    and, so that a wrong but quick answer at large sizes earns nothing, `reference(*arguments)` with the right result.

    Edge cases: a row without workload gives None. A program that is too fast to be told (under 2 ms at all but one of
    the sizes) scores 1; one that is not done in time is judged by the sizes that it did, and scores 0 with fewer than
    two. It may start neither processes nor threads.

    Args:
        completions: text or messages, [N].
        tests: as for `code_tests`, [N].
        entry_point: the function that is called, [N].
        workload: Python source with `arguments` and `reference`, or None, [N].
        exponent: the growth that earns 1, per row, or None for `usual_exponent`, [N].
        sizes: in rising order, three or more.
        usual_exponent: for rows without one of their own: 1 for linear, 2 for quadratic.
        slack: what is added to the exponent before anything is taken off.
        repeats: calls per size, each in a new process, so that nothing is kept between them; the cheapest counts.
        isolation: `bubblewrap`, or the weaker mode `restricted`.
        python: interpreter to run with; None for this one with the standard library alone.
        seconds: wall time for the tests, and again for all calls.
        memory_mb: memory in MiB.
        tolerance: by how much numbers may differ from the reference, absolutely or relatively.

    Raises:
        SandboxError: this machine cannot isolate programs in this way.
        ValueError: sizes that do not rise; a row's tests or entry point are of no known form.
    """
    if list(sizes) != sorted(set(sizes)) or sizes[0] < 1:
        raise ValueError(f"sizes are whole numbers above 0 in rising order, not {list(sizes)}")
    how = settle(
        isolation=isolation, python=python, tolerance=tolerance, seconds=seconds, memory_mb=memory_mb
    )
    asked = [None if work is None else row for work, row in zip(workload, tests, strict=True)]
    grades = grade_all(completions, asked, entry_point, how, stop=True)
    scores: list[float | None] = [None if grade is None else 0.0 for grade in grades]
    for i, grade in enumerate(grades):
        if grade is None or grade.outcome != "pass":
            continue
        program = extract_code(text_of(completions[i]))
        growth = _measured(program, workload[i], entry_point[i], how, sizes=sizes, repeats=repeats)
        own = None if exponent is None else exponent[i]
        scores[i] = growth_value(growth, usual_exponent if own is None else float(own), slack)
    return scores


def _measured(program: str, workload: Any, entry_point: Any, how: How, **calls: Any) -> Growth:
    if not isinstance(workload, str) or not isinstance(entry_point, str):
        raise ValueError(f"workload and entry_point are texts, not {workload!r:.40} and {entry_point!r:.40}")
    return measure_growth(
        program,
        workload,
        entry_point,
        limits=how.limits,
        isolation=how.isolation,
        python=how.python,
        tolerance=how.tolerance,
        **calls,
    )
