"""How growth is fitted, with a clock of our own, and that it is measured at all."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest

from groupwise.rewards.sandbox import Limits
from groupwise.rewards.sandbox.growth import Growth, _Clock, exponent_of, growth_value, measure_growth
from tests.rewards.sandbox.conftest import ways

WORK = "def arguments(n):\n    return (list(range(n, 0, -1)),)\ndef reference(a):\n    return sorted(a)\n"


def test_the_exponent_is_the_slope_of_the_logarithms() -> None:
    assert exponent_of({n: 3e-6 * n**2 for n in (1000, 2000, 4000)}) == pytest.approx(2.0, abs=1e-12)
    assert exponent_of({n: 1e-5 * n for n in (1000, 2000, 4000)}) == pytest.approx(1.0, abs=1e-12)
    # Two points, by hand: (log 0.012 - log 0.004) / (log 200 - log 100) = log 3 / log 2 = 1.58496.
    assert exponent_of({100: 0.004, 200: 0.012}) == pytest.approx(1.58496, abs=1e-5)
    # Three points x = 0, 1, 2 and y = 0, 1, 1 in logarithms of 2: slope (1*1 + 0) / 2 = 0.5, so y rises by half.
    assert exponent_of({1: 0.004, 2: 0.008, 4: 0.008}) == pytest.approx(0.5, abs=1e-12)


def test_short_times_and_small_sizes_do_not_count() -> None:
    assert exponent_of({1000: 0.0001, 2000: 0.0001, 4000: 0.001}) is None
    assert exponent_of({1000: 0.01}) is None
    assert exponent_of({}) is None
    # The smallest of five is left out: its 1 s would turn the slope round.
    assert exponent_of({1: 1.0, 10: 0.01, 20: 0.02, 40: 0.04, 80: 0.08}) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("exponent", "allowed", "value"),
    [
        (1.0, 1.0, 1.0),
        (1.4, 1.0, 1.0),
        (1.9, 1.0, 0.5),
        (2.4, 1.0, 0.0),
        (3.0, 1.0, 0.0),
        (2.0, 2.0, 1.0),
        (0.1, 1.0, 1.0),
    ],
)
def test_the_value_falls_over_one_power(exponent: float, allowed: float, value: float) -> None:
    growth = Growth(seconds={}, exponent=exponent, finished=True)
    assert growth_value(growth, allowed, 0.4) == pytest.approx(value)


def test_the_value_where_there_is_no_exponent() -> None:
    assert growth_value(Growth(seconds={}, exponent=None, finished=True), 1.0, 0.4) == 1.0
    assert growth_value(Growth(seconds={}, exponent=None, finished=False), 1.0, 0.4) == 0.0
    assert growth_value(Growth(seconds={}, exponent=1.0, finished=True, fault="wrong"), 1.0, 0.4) == 0.0


def test_the_clock_counts_the_call_and_what_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(time, "clock_gettime_ns", lambda number: now[0])
    ours, theirs = socket.socketpair()
    clock = _Clock(SimpleNamespace(processes=lambda: [4711]), ours)  # type: ignore[arg-type]

    def marks(*steps: tuple[str, int]) -> None:
        for what, after_ms in steps:
            now[0] += after_ms * 1_000_000
            clock.mark(what, 100)

    marks(("begin", 1), ("echoed", 4))  # handing over and back: 4 ms
    marks(("begin", 9), ("call", 2), ("called", 30), ("fetched", 3))
    assert clock.taken() == {100: 0.030}  # 2 + 3 ms around it are less than 3 x 4 + 10
    marks(("begin", 9), ("call", 2), ("called", 5), ("fetched", 3))
    assert clock.taken() == {100: 0.005}
    clock._calls.clear()
    marks(("begin", 9), ("call", 2), ("called", 1), ("fetched", 50))
    assert clock.taken() == {100: pytest.approx(0.031)}  # 1 + (52 - 22): the result was made when it was read
    for end in (ours, theirs):
        end.close()


@pytest.mark.parametrize("isolation", ways(), indirect=True)
class TestMeasured:
    def test_a_program(self, isolation: Any) -> None:
        given = measure_growth("def f(a): return sorted(a)", WORK, "f", sizes=(10, 20), isolation=isolation)
        assert (given.finished, given.fault) == (True, "")
        assert list(given.seconds) == [10, 20]
        method = "class Solution:\n    def f(self, a): return sorted(a)"
        given = measure_growth(method, WORK, "f", sizes=(10, 20), isolation=isolation)
        assert (given.finished, given.fault) == (True, "")
        assert all(0 < seconds < 1 for seconds in given.seconds.values())

    def test_wrong_at_a_size_that_the_tests_do_not_reach(self, isolation: Any) -> None:
        program = "def f(a): return sorted(a) if len(a) < 15 else a"
        given = measure_growth(program, WORK, "f", sizes=(10, 20), isolation=isolation)
        assert given.fault.startswith("at size 20 it gave [20, 19,")

    def test_what_a_program_kept_of_a_call_does_not_answer_the_next(self, isolation: Any) -> None:
        # Each says so when it has seen an input of this size before: kept in its module, and in one of Python's.
        for kept in ("seen", "sys.seen"):
            program = (
                "import sys\nseen = set()\nif not hasattr(sys, 'seen'):\n    sys.seen = set()\n"
                f"def f(a):\n    if len(a) in {kept}:\n        return 'again'\n    {kept}.add(len(a))\n"
                "    return sorted(a)\n"
            )
            given = measure_growth(program, WORK, "f", sizes=(10, 20), repeats=3, isolation=isolation)
            assert (given.finished, given.fault) == (True, "")
        counts = "count = 0\ndef f(a):\n    global count\n    count += 1\n    return sorted(a) if count == 1 else 0\n"
        assert measure_growth(counts, WORK, "f", sizes=(10, 20), isolation=isolation).fault == ""

    def test_what_raises_ends_or_starts_others(self, isolation: Any) -> None:
        sizes = (10, 20)
        assert (
            "ZeroDivisionError"
            in measure_growth("def f(a): 1 / 0", WORK, "f", sizes=sizes, isolation=isolation).fault
        )
        ended = measure_growth(
            "import os\ndef f(a): os._exit(0)", WORK, "f", sizes=sizes, isolation=isolation
        )
        assert ended.fault
        forks = measure_growth(
            "import os\nos.fork()\ndef f(a): return a", WORK, "f", sizes=sizes, isolation=isolation
        )
        assert "BlockingIOError" in forks.fault or "PermissionError" in forks.fault
        missing = measure_growth("x = 1", WORK, "f", sizes=sizes, isolation=isolation)
        assert "the program has no 'f'" in missing.fault

    def test_what_is_not_done_in_time(self, isolation: Any) -> None:
        slow = "import time\ndef f(a):\n    time.sleep(len(a))\n    return sorted(a)"
        given = measure_growth(
            slow, WORK, "f", sizes=(10, 20), isolation=isolation, limits=Limits(seconds=0.5)
        )
        assert not given.finished
        assert growth_value(given, 1.0, 0.4) == 0.0

    @pytest.mark.long
    def test_quadratic_and_linear_are_told_apart(self, isolation: Any) -> None:
        # Exponents of 2 and 1; half a power is several times what caches and neighbours have been seen to do.
        counting = "def f(a):\n    return sorted(a, key=lambda x: sum(1 for y in a if y < x))"
        quadratic = measure_growth(
            counting, WORK, "f", sizes=(500, 1000, 2000), isolation=isolation, limits=Limits(seconds=120)
        )
        walking = "def f(a):\n    for _ in range(500):\n        for x in a: pass\n    return sorted(a)"
        linear = measure_growth(
            walking, WORK, "f", sizes=(5000, 10000, 20000), isolation=isolation, limits=Limits(seconds=120)
        )
        assert quadratic.exponent is not None
        assert linear.exponent is not None
        assert quadratic.exponent > linear.exponent + 0.5
