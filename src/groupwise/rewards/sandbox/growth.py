"""How the processor time of a program grows with the size of its input."""

from __future__ import annotations

import math
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.rewards.sandbox.cell import Cell, GoneError, LateError
from groupwise.rewards.sandbox.isolation import Isolation
from groupwise.rewards.sandbox.limits import Limits
from groupwise.rewards.sandbox.pool import pool_for

FLOOR_SECONDS = 0.002
"""Processor time below which a call says nothing of its growth."""
_AROUND, _AROUND_SPARE = 3, 10_000_000
"""Handing over may cost so many times the echo, and so many nanoseconds, before it counts as part of the call."""
_FITTED = 4
"""The largest sizes that the exponent is fitted to: growth is what large inputs show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What was measured of one program."""

    seconds: Mapping[int, float]
    """Size to processor seconds of one call, the cheapest of the repeats."""
    exponent: float | None
    """Slope of log time over log size at the largest sizes; None where fewer than two took long enough to tell."""
    finished: bool
    """True when every size was called in time."""
    fault: str = ""
    """Why it cannot be judged: it raised, ended, or gave a wrong result; empty for nothing."""


def measure_growth(
    program: str,
    workload: str,
    entry_point: str,
    *,
    sizes: Sequence[int],
    repeats: int = 3,
    limits: Limits | None = None,
    isolation: Isolation = "bubblewrap",
    python: str | None = None,
    tolerance: float = 0.0,
) -> Growth:
    """Call a function of the program with inputs of rising size.

    The basis is processor time of the program's process, user and system, as the kernel counts it and the host reads
    it: other work on the machine and what the program prints do not enter. Its process may not start others, so that
    it cannot have the work done elsewhere.

    Args:
        program: Python source.
        workload: Python source with `arguments(size)`, which gives the function's arguments as a tuple, and perhaps
            `reference(*arguments)`, which gives the right result. `random` is seeded with the size.
        entry_point: the function.
        sizes: in rising order.
        repeats: calls per size, each in a new process, so that nothing it kept from an earlier call helps it.
        limits: what it may use; `seconds` is for all calls together.
        isolation: how it is kept apart.
        python: the interpreter; None for the one that runs this, without site packages.
        tolerance: by how much numbers may differ from the reference.

    Raises:
        SandboxError: this machine cannot isolate programs in this way.
    """
    limits = limits or Limits()
    alone = Limits(
        seconds=limits.seconds,
        memory_mb=limits.memory_mb,
        processes=1,
        disk_mb=limits.disk_mb,
    )
    job = {
        "role": "growth",
        "limits": limits.told(),
        "program": program,
        "workload": workload,
        "entry_point": entry_point,
        "sizes": list(sizes),
        "tolerance": tolerance,
    }
    pool = pool_for(isolation, python, limits.disk_mb)
    deadline = time.monotonic() + limits.seconds
    cheapest: dict[int, float] = {}
    fault, finished = "", False
    for _ in range(repeats):
        with pool.cell(limits) as cell, pool.cell(limits) as judge:
            taken, fault, done = _once(cell, judge, job, alone, deadline)
        for size, seconds in taken.items():
            cheapest[size] = min(seconds, cheapest.get(size, seconds))
        finished |= done
        if fault or not done:
            break
    return Growth(seconds=cheapest, exponent=exponent_of(cheapest), finished=finished, fault=fault)


def _once(
    cell: Cell, judge: Cell, job: dict[str, Any], alone: Limits, deadline: float
) -> tuple[dict[int, float], str, bool]:
    """Every size once, in a process that has seen no input yet: seconds by size, fault, and whether all were called.

    All sizes lie in each round, so that a busy moment of the machine spoils one round and not one size.
    """
    secret = secrets.token_hex(16)
    link, their_link = socket.socketpair()
    marks, their_marks = socket.socketpair()
    with link, their_link, marks, their_marks:
        clock = _Clock(cell, marks)
        try:
            cell.send({"role": "program", "limits": alone.told()}, link)
            judge.send(job | {"secret": secret}, their_link, their_marks)
            link.close()
            their_link.close()
            while True:
                said = judge.receive(deadline)
                if not (isinstance(said, tuple) and said[0] == secret):
                    raise GoneError
                if said[1][0] == "done":
                    return clock.taken(), said[1][1], True
                clock.mark(*said[1][1:])
        except LateError:
            cell.kill()
            judge.kill()
            return clock.taken(), "", False
        except (GoneError, OSError):
            judge.kill()
            return clock.taken(), cell.over or judge.over or "the program ended", False


class _Clock:
    """Processor time of the program's process between marks.

    A call is what lies between `call` and `called`. Handing the input over and the result back is not counted, as long
    as it costs about what it cost before the program was there; what a program puts off until its result is read, or
    does before it is called, is counted like the call.
    """

    def __init__(self, cell: Cell, marks: socket.socket) -> None:
        self._cell = cell
        self._marks = marks
        self._number: int | None = None
        self._at: dict[str, int] = {}
        self._echoed: dict[int, int] = {}
        self._calls: dict[int, int] = {}

    def mark(self, what: str, size: int) -> None:
        """Take the time, then let the other side go on."""
        if self._number is None:
            # The clock of another process, as clock_getcpuclockid(3) makes its number.
            self._number = (~self._cell.processes()[-1] << 3) | 2
        self._at[what] = time.clock_gettime_ns(self._number)
        if what == "echoed":
            self._echoed[size] = self._at["echoed"] - self._at["begin"]
        elif what == "fetched":
            call = self._at["called"] - self._at["call"]
            around = self._at["fetched"] - self._at["begin"] - call
            call += max(0, around - _AROUND * self._echoed[size] - _AROUND_SPARE)
            self._calls[size] = call
        self._marks.send(b".")

    def taken(self) -> dict[int, float]:
        """Seconds by size."""
        return {size: spent / 1e9 for size, spent in self._calls.items()}


def exponent_of(seconds: Mapping[int, float]) -> float | None:
    """Least-squares slope of log time over log size, over the largest sizes that took long enough; None without two.

    Times c n^p have the slope p. n log n between 1,000 and 4,000 has 1.13.
    """
    points = [(math.log(n), math.log(t)) for n, t in sorted(seconds.items()) if t >= FLOOR_SECONDS][-_FITTED:]
    if len(points) < 2:
        return None
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


def growth_value(growth: Growth, allowed: float, slack: float) -> float:
    """From 1, where it grows no faster than allowed, to 0, where it grows by one power of the size faster.

    Not finished in time, with fewer than two sizes to judge by, is 0; finished too fast to tell is 1.
    """
    if growth.fault:
        return 0.0
    if growth.exponent is None:
        return float(growth.finished)
    return min(1.0, max(0.0, 1.0 - (growth.exponent - allowed - slack)))
