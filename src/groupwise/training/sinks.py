"""Where a step's numbers go: metrics.jsonl always, and the sinks of `run.sinks` beside it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from groupwise.errors import raised


class Sink(Protocol):
    """Takes the metrics of each step."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take one step's numbers."""
        ...

    def close(self) -> None:
        """Flush what is held."""
        ...


class Terminal:
    """A line per step: progress, reward, what to watch, time left."""

    def __init__(self, steps: int, console: Console | None = None) -> None:
        """Start the clock of a run with so many steps."""
        self.steps = steps
        self.console = console or Console(highlight=False)
        self.seconds: list[float] = []
        self.started = time.perf_counter()

    def say(self, sentence: str) -> None:
        """A plain line."""
        self.console.print(sentence, markup=False)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """See `Sink`."""
        parts = [f"step {step:>{len(str(self.steps))}}/{self.steps}"]
        for name, label, form in (
            ("reward/mean", "reward", ".3f"),
            ("reward/zero_spread_fraction", "no spread", ".0%"),
            ("kl/token_mean", "kl", ".4f"),
            ("policy/entropy", "entropy", ".2f"),
            ("length/mean", "length", ".1f"),
            ("grad/norm", "grad", ".2f"),
            ("dpo/loss", "loss", ".4f"),
            ("dpo/accuracy", "accuracy", ".0%"),
            ("dpo/margin_mean", "margin", "+.3f"),
            ("eval/pass@1", "held-out pass@1", ".1%"),
            ("eval/dpo_accuracy", "held-out accuracy", ".1%"),
        ):
            if name in metrics:
                parts.append(f"{label} {metrics[name]:{form}}")
        if "time/step_seconds" in metrics:
            self.seconds.append(metrics["time/step_seconds"])
            recent = self.seconds[-10:]
            left = (self.steps - step) * sum(recent) / len(recent)
            parts.append(f"{recent[-1]:.1f} s, {_clock(left)} left")
        self.say("  ".join(parts))

    def close(self) -> None:
        """Nothing is held."""


class TensorBoard:
    """Scalars in the run folder's events/."""

    def __init__(self, folder: Path, *, after: int | None = None) -> None:
        """Open an event file in the folder; of a resumed run, what earlier ones hold after that step is hidden."""
        from torch.utils.tensorboard import SummaryWriter

        self.writer: Any = SummaryWriter(str(folder), purge_step=None if after is None else after + 1)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """See `Sink`."""
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush the events."""
        self.writer.close()


class Guarded:
    """A sink that may fail without ending the run: the failure is told once, and it is left alone from then on."""

    def __init__(self, sink: Sink, name: str, console: Console) -> None:
        """Guard a sink; `name` is for the notice."""
        self.sink: Sink | None = sink
        self.name = name
        self.console = console

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """See `Sink`."""
        self._try("write", step, metrics)

    def close(self) -> None:
        """See `Sink`."""
        self._try("close")

    def _try(self, method: str, *arguments: Any) -> None:
        if self.sink is None:
            return
        try:
            getattr(self.sink, method)(*arguments)
        except Exception as error:  # whatever a tracker raises, the run goes on
            self.sink = None
            self.console.print(
                f"the {self.name} sink failed ({raised(error)}) and is left out from here; "
                "metrics.jsonl goes on",
                markup=False,
            )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
