r"""Whatever a model may write: no exception, no fault in a worker, no answer over its time."""

import logging
import random
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groupwise.rewards.mathematics.vocabulary import vocabulary
from groupwise.rewards.scorers.math_answer import math_answer
from tests.rewards.mathematics.variants import RIGHT, WRONG

PIECES = vocabulary(
    r"\boxed{ \frac \sqrt \text{ \left( \right) \begin{pmatrix} \end{pmatrix} \\ & \{ \} \pm \cup \infty \in \le "
    r"\circ \overline{ \dot \binom \log_ \sin \pi \int \sum_{i=1}^ \mathbb{R} \setminus { } ( ) [ ] ^ _ ^{ _{ + - * "
    r"/ = < > | ! % $ $$ \( \) \[ \] #### ** * ` , ; : . ... ? <think> </think> <answer> </answer> << >> 0 1 2 12 "
    r"1,234 3.5 .5 007 1e5 9^9 x y i e n f(x) ½ ² ₃ √ π ∞ − ４ ١ cm m/s apples percent million and or not is yes C "
    r"(C) answer AND 1e999 \ \frac12"
) | {
    "The answer is ",
    "Final Answer\n",
    "so we get ",
    "\n",
    " ",
    "Answer: ",
    "is wrong",
    "\u200b",
    "\t",
    "No, ",
    "1A_{16}",
    "101 base 2",
    "(base two)",
    "|x| < ",
    "x > 1, x < 4",
    "March 5, 2020",
    "3:45 pm",
    "two dozen",
    "1.5k",
    "\\begin{cases}",
    "\\end{cases}",
    "\\begin{matrix}",
    "\\end{matrix}",
    "\\over ",
    "\\choose ",
    " out of ",
    "30^\\circ 15'",
    "all real numbers except ",
    " Or 9.",
    "~~",
    "12\u4e07",
    ", n \\in \\mathbb{Z}",
    " \\approx 3.14",
    "[THINK]",
    "<|channel|>final",
}
FRAGMENTS = sorted(PIECES)
KNOWN = [
    text
    for table in (RIGHT, WRONG)
    for rows in table.values()
    for row in rows
    for text in row
    if len(text) < 200
]


def written(source: random.Random) -> str:
    """A text in one of seven ways: noise, fragments run together, two known texts spliced, one fragment many times."""
    kind = source.randrange(7)
    some = [source.choice(FRAGMENTS) for _ in range(source.randrange(1, 20))]
    if kind == 0:
        return "".join(
            chr(source.choice((32, 0x80, 0x2000, 0x3000, 0x1D400, 0xFF00)) + source.randrange(95))
            for _ in some
        )
    if kind <= 2:
        return ("", " ")[kind - 1].join(some)
    if kind == 3:
        return rf"\boxed{{{''.join(some[:10])}}}"
    if kind == 4:
        return source.choice(FRAGMENTS) * source.randrange(1, 300)
    first, second = source.choice(KNOWN), source.choice(KNOWN)
    return first if kind == 5 else first[: source.randrange(40)] + second[source.randrange(40) :]


def pair(seed: int) -> tuple[str, str]:
    source = random.Random(seed)
    return written(source), written(source)


# A pair from a seed is made much faster than one that is drawn piece by piece.
seeds = st.lists(st.integers(0, 2**63), min_size=20, max_size=20)
texts = st.lists(st.tuples(st.text(max_size=60), st.text(max_size=60)), max_size=5)


def check(rows: list[tuple[str, str]], caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    began = time.process_time()
    scores = math_answer([said for said, _ in rows], [gold for _, gold in rows], seconds=2.0)
    assert time.process_time() - began < 20 * 0.5
    assert set(scores) <= {0.0, 1.0, None}
    assert [
        record.getMessage() for record in caplog.records if "could not compare" in record.getMessage()
    ] == []


QUIET: Any = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
}


@settings(max_examples=50, derandomize=True, **QUIET)
@given(drawn=seeds, more=texts)
def test_a_thousand_inputs(
    drawn: list[int], more: list[tuple[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        check([*map(pair, drawn), *more], caplog)


@pytest.mark.long
@pytest.mark.timeout(900)
@settings(max_examples=1000, **QUIET)
@given(drawn=seeds)
def test_twenty_thousand_inputs(drawn: list[int], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check([*map(pair, drawn)], caplog)


@settings(max_examples=300, derandomize=True, **QUIET)
@given(value=st.integers(-(10**9), 10**9), other=st.integers(-(10**9), 10**9), form=st.sampled_from(range(8)))
def test_whole_numbers_equal_themselves_alone(value: int, other: int, form: int) -> None:
    forms = (
        f"The answer is {value}.",
        rf"\boxed{{{value:,}}}",
        f"#### {value:_}",
        f"so it is {value}.00",
        rf"$x = {value}$",
        f"<answer>{value}</answer>",
        rf"\boxed{{\frac{{{2 * value}}}{{2}}}}",
        f"{value} apples",
    )
    assert math_answer([forms[form]] * 2, [str(value), str(other)]) == [1.0, float(value == other)]


@settings(max_examples=200, derandomize=True, **QUIET)
@given(over=st.integers(-999, 999), under=st.integers(1, 999), other=st.fractions(-9, 9, max_denominator=99))
def test_fractions_equal_themselves_alone(over: int, under: int, other: Any) -> None:
    gold = rf"\frac{{{over}}}{{{under}}}"
    said = [f"{over}/{under}", rf"\boxed{{\dfrac{{{3 * over}}}{{{3 * under}}}}}", str(other)]
    assert math_answer(said, [gold] * 3) == [1.0, 1.0, float(other * under == over)]
