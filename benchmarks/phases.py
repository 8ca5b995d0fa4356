"""Seconds by phase, measured from outside by wrapping functions. Standard library only."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any


class Phases:
    """A stopwatch per phase. A phase within another counts for the inner one alone."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._open: list[list[float]] = []

    def wrap(self, owner: Any, name: str, phase: str | Callable[[], str | None]) -> None:
        """Count the calls of `owner.name` as a phase, or as the one that a function names (None for none)."""
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def timed(*args: Any, **kwargs: Any) -> Any:
            label = phase() if callable(phase) else phase
            if label is None:
                return inner(*args, **kwargs)
            start = time.perf_counter()
            self._open.append([0.0])
            try:
                return inner(*args, **kwargs)
            finally:
                total = time.perf_counter() - start
                within = self._open.pop()[0]
                self.seconds[label] = self.seconds.get(label, 0.0) + total - within
                if self._open:
                    self._open[-1][0] += total

        setattr(owner, name, timed)

    def take(self, total: float) -> dict[str, float]:
        """The phases since the last time, and `rest`: what of the total they leave."""
        taken, self.seconds = self.seconds, {}
        return {**taken, "rest": total - sum(taken.values())}
