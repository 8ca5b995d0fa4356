"""Sampling the next batch while this one is trained (rollout.overlap), and handing the weights over in between.

One step off-policy, as in Noukhovitch et al. 2024 (arXiv:2410.18252): with weights v the sampler draws batch k + 1
while batch k, drawn with the weights before, is trained to v + 1. The weights are handed over when both have finished,
so that a batch is always of one version, and every run of the same seed is alike.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from groupwise.checkpoint.state import Stateful
from groupwise.config.rollout import RolloutConfig
from groupwise.health.metric import Metric, Total
from groupwise.rewards.reward import Taken
from groupwise.rollouts.collect import Collected
from groupwise.rollouts.engine import Engine

Drawn = tuple[Collected, dict[str, Metric], Taken]

DRAWING = ("order", "curriculum", "rewards")
"""The parts of a run that drawing a batch changes."""


@dataclass(frozen=True, slots=True)
class _AsBefore:
    """A part as it was before a batch was drawn ahead. Restoring is for the part itself."""

    kept: Mapping[str, Any]

    def state(self) -> Mapping[str, Any]:
        return self.kept

    def restore(self, state: Mapping[str, Any]) -> None:
        raise AssertionError("a batch drawn ahead is dropped before anything is restored")


class _Pending:
    """A batch on its way, in a thread that does not keep the program from ending."""

    def __init__(self, step: int, draw: Callable[[], Drawn], before: Mapping[str, Mapping[str, Any]]) -> None:
        self.step, self.before = step, before
        self._draw = draw
        self._drawn: Drawn | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"groupwise-step-{step}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._drawn = self._draw()
        except BaseException as error:  # raised where the batch is wanted
            self._error = error

    def finish(self) -> Drawn:
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._drawn is not None
        return self._drawn


class Ahead:
    """The batch that is being drawn, or has been, before it is wanted."""

    def __init__(self) -> None:
        """None so far."""
        self._pending: _Pending | None = None

    def start(self, step: int, draw: Callable[[], Drawn], parts: Mapping[str, Stateful]) -> None:
        """Begin to draw the batch of a step.

        Args:
            step: 1 for the first.
            draw: draws it.
            parts: of the run; the state of those that drawing changes is kept as it is now.
        """
        before = {name: parts[name].state() for name in DRAWING if name in parts}
        self._pending = _Pending(step, draw, before)

    def take(self, step: int, draw: Callable[[], Drawn]) -> Drawn:
        """The batch of a step: the one drawn ahead, or else drawn now. What drawing raised is raised here."""
        pending, self._pending = self._pending, None
        if pending is None:
            return draw()
        assert pending.step == step
        return pending.finish()

    def wait(self) -> float:
        """Wait for the batch, which stays; the seconds that took. What drawing raised is raised here."""
        started = time.perf_counter()
        if self._pending is not None:
            self._pending.finish()
        return time.perf_counter() - started

    def drop(self) -> None:
        """Forget the batch, which is of weights that are given up. Its prompts are not drawn a second time."""
        if self._pending is not None:
            self._pending.finish()
            self._pending = None

    def as_before(self, parts: Mapping[str, Stateful]) -> dict[str, Stateful]:
        """The parts of a run for a checkpoint: a batch drawn ahead is not in it, and will be drawn again."""
        if self._pending is None:
            return dict(parts)
        kept: dict[str, Stateful] = {name: _AsBefore(state) for name, state in self._pending.before.items()}
        return {**parts, **kept}


def hand_over(
    ahead: Ahead, engine: Engine, rollout: RolloutConfig, updates: int, model: torch.nn.Module
) -> dict[str, Metric]:
    """Give the engine the weights of the update that was just made, once it has finished the batch ahead."""
    waited = ahead.wait()
    started = time.perf_counter()
    engine.load_weights(updates, model)
    metrics: dict[str, Metric] = {}
    if rollout.engine != "in_process":
        metrics["time/weights_seconds"] = Total(time.perf_counter() - started)
    if rollout.overlap:
        metrics["time/wait_seconds"] = Total(waited)
    return metrics
