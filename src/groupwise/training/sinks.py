"""Where a step's numbers go: metrics.jsonl always, and the sinks of `run.sinks` beside it.

Every sink is handed the same numbers. None of them can end a run: whatever it raises is held off by `Guarded`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from groupwise.errors import raised

PROJECT = "groupwise"
"""What a tracker files runs under, unless its own environment variable names another project."""


class Sink(Protocol):
    """Takes the metrics of each step."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take one step's numbers."""
        ...

    def close(self) -> None:
        """Flush what is held."""
        ...


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


class Tracker:
    """Weights & Biases or trackio, which take the same calls. A resumed run is another one of the same name there."""

    def __init__(self, package: str, name: str, settings: Mapping[str, Any], **more: Any) -> None:
        """Begin a run there.

        Args:
            package: `wandb` or `trackio`.
            name: of the run folder.
            settings: the configuration by dotted key.
            more: what only this one takes.

        Raises:
            ModuleNotFoundError: the package is not installed.
        """
        self.module: Any = _imported(package)
        project = os.environ.get(f"{package.upper()}_PROJECT") or PROJECT
        self.module.init(project=project, name=name, config=dict(settings), **more)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """See `Sink`. What is not finite is left out, since not every tracker can hold it."""
        self.module.log({name: float(v) for name, v in metrics.items() if math.isfinite(v)}, step=step)

    def close(self) -> None:
        """Send what is left."""
        self.module.finish()


class Guarded:
    """A sink that may fail without ending the run.

    A step that it cannot take is lost to it alone. When it fails `TRIES` times in a row, in opening or in taking a
    step, that is told once and it is left out from there on.
    """

    TRIES = 3

    def __init__(self, make: Callable[[], Sink], name: str, say: Callable[[str], None]) -> None:
        """Guard a sink.

        Args:
            make: opens it; tried again with later steps when it fails.
            name: for the notice.
            say: tells whoever watches.
        """
        self._make = make
        self._sink: Sink | None = None
        self._name = name
        self._say = say
        self._failures = 0
        self._lost: list[int] = []
        self._last: Exception | None = None
        self._over = False
        self._attempt(None, self._open)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """See `Sink`."""

        def put() -> None:
            self._open().write(step, metrics)

        self._attempt(step, put)

    def close(self) -> None:
        """See `Sink`. Also tells of steps that were lost on the way."""
        if not self._over and self._sink is not None:
            self._attempt(None, self._sink.close, last=True)
        if not self._over and self._lost:
            self._tell(f"did not take step {_spans(self._lost)} ({raised(self._last or OSError())})")
        self._over = True

    def _open(self) -> Sink:
        if self._sink is None:
            self._sink = self._make()
        return self._sink

    def _attempt(self, step: int | None, do: Callable[[], object], *, last: bool = False) -> None:
        if self._over:
            return
        try:
            do()
            self._failures = 0
        except Exception as error:  # whatever a tracker raises, the run goes on
            self._failures += 1
            self._last = error
            self._lost += [] if step is None else [step]
            if isinstance(error, ModuleNotFoundError):
                remedy = (
                    f"; pip install 'groupwise[{self._name}]'" if self._name in ("wandb", "trackio") else ""
                )
                self._end(f"is left out, since {error.name} is not installed{remedy}")
            elif last or self._failures == self.TRIES:
                self._end(f"failed ({raised(error)}) and is left out from here")

    def _end(self, said: str) -> None:
        self._over = True
        self._tell(said)

    def _tell(self, said: str) -> None:
        self._say(f"the {self._name} sink {said}; metrics.jsonl has every step")


def _imported(package: str) -> Any:
    """The tracker, imported only where a run asks for it."""
    if package == "wandb":
        import wandb

        return wandb
    import trackio

    return trackio


def _spans(steps: list[int]) -> str:
    """Steps as `3 to 5, 9`."""
    spans: list[list[int]] = []
    for step in steps:
        if spans and step == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], step]
        else:
            spans.append([step])
    return ", ".join(" to ".join(map(str, span)) for span in spans)
