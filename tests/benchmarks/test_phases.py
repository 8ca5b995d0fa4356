"""Seconds go to the phase that spent them, the innermost one."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from benchmarks.phases import Phases


def test_inner_phases_are_taken_out_of_outer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    work = SimpleNamespace()

    def inner(seconds: float) -> str:
        clock.now += seconds
        return "done"

    def outer() -> str:
        clock.now += 1.0
        said = work.inner(4.0)
        clock.now += 2.0
        return said

    work.inner, work.outer = inner, outer
    phases = Phases()
    switch = SimpleNamespace(label="inner")
    phases.wrap(work, "inner", lambda: switch.label)
    phases.wrap(work, "outer", "outer")
    assert work.outer() == "done"
    assert phases.take(10.0) == {"inner": 4.0, "outer": 3.0, "rest": 3.0}
    switch.label = None
    work.outer()
    assert phases.take(7.0) == {"outer": 7.0, "rest": 0.0}
