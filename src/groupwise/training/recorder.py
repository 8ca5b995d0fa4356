"""Writes what each step leaves behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType

from filelock import BaseFileLock

from groupwise.health.facts import Facts
from groupwise.health.watch import Watch
from groupwise.records import Group, StepRecord
from groupwise.records.health_file import ActionTaken, Fault, HealthEvent, HealthFile
from groupwise.records.metrics_file import MetricsFile, read_metrics
from groupwise.records.replace import replace_file
from groupwise.records.rollout_file import write_rollouts
from groupwise.records.run_folder import RunFolder
from groupwise.training.distributed import ALONE, Ranks
from groupwise.training.samples import due, page
from groupwise.training.sinks import Sink


class Recorder:
    """metrics.jsonl and the rollout files always, the sinks beside them. Of several ranks the first writes them."""

    def __init__(
        self,
        folder: RunFolder,
        sinks: Sequence[Sink],
        *,
        save_rollouts: bool,
        samples_every_steps: int | None = None,
        say: Callable[[str], None] | None = None,
        held: BaseFileLock | None = None,
        watch: Watch | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        """Open the files of a run folder.

        Args:
            folder: of the run.
            sinks: beside metrics.jsonl.
            save_rollouts: write each step's.
            samples_every_steps: how often a few rollouts are written for people; None for never.
            say: shows a sentence to whoever watches the run.
            held: the lock on the folder, released at the end.
            watch: makes the health checks on each step that is written; None for none.
            ranks: who see the same metrics.
        """
        self.folder = folder
        self._ranks = ranks
        self._held = held
        self.sinks = sinks
        self.save_rollouts = save_rollouts
        self._samples_every_steps = samples_every_steps
        self._say = say
        self._said: set[str] = set()
        self._step = 0
        self.metrics = MetricsFile(folder.metrics_file) if ranks.first else None
        self.watch = watch or Watch({}, Facts())
        self.watch.write, self.watch.say = self._event if ranks.first else None, say

    def notice(self, kind: str, sentence: str) -> None:
        """Tell whoever watches, once for each kind."""
        if kind not in self._said and self._say is not None:
            self._say(sentence)
        self._said.add(kind)

    def fault(self, fault: Fault) -> None:
        """Record why an update of the step in progress is skipped, and tell whoever watches."""
        if not self._ranks.first:
            return
        with HealthFile(self.folder.health_file) as file:
            file.append(self._step + 1, fault)
        if self._say is not None:
            self._say(f"an update of step {self._step + 1} is skipped: {fault.sentence}")

    def _event(self, event: HealthEvent | ActionTaken) -> None:
        with HealthFile(self.folder.health_file) as file:
            if isinstance(event, ActionTaken):
                file.append_action(event)
            else:
                file.append_event(event)

    def state(self) -> dict[str, int]:
        """How long the files that grow are, and the last step in them."""
        health = self.folder.health_file
        return {
            "metrics_bytes": 0 if self.metrics is None else self.metrics.size_bytes,
            "health_bytes": health.stat().st_size if health.exists() else 0,
            "step": self._step,
        }

    def restore(self, state: Mapping[str, int]) -> None:
        """See `checkpoint.state.Stateful`: what was written after that state was taken is removed.

        Raises:
            RunFolderError: metrics.jsonl has lost lines, or something cannot be removed.
        """
        self._step = state["step"]
        self._ranks.from_first(lambda: self._cut(state))
        self.watch.remember(self.lines())

    def _cut(self, state: Mapping[str, int]) -> None:
        if self.metrics is not None:
            self.metrics.cut(state["metrics_bytes"])
        if self.folder.health_file.exists():
            with HealthFile(self.folder.health_file) as file:
                file.cut(state["health_bytes"])
        self.folder.remove_after(state["step"])

    def lines(self) -> list[dict[str, float]]:
        """The metrics recorded so far."""
        return self._ranks.from_first(lambda: read_metrics(self.folder.metrics_file))

    def write(self, record: StepRecord) -> dict[str, float]:
        """Write one step: rollouts first, so that a line of metrics always has its rollouts.

        What the first rank writes is what every rank's health checks see, so that they find and do the same.

        Returns:
            The metrics of what findings did to the run, which are in the line as well.
        """
        metrics, seconds = self._ranks.from_first(lambda: self._begun(record))
        self._step = record.step
        self.watch.look({"step": record.step, **metrics}, record.groups)
        acted = self.watch.act()
        line = {**metrics, **acted, "time/record_seconds": seconds}
        self._ranks.from_first(lambda: self._log(record.step, line))
        return acted

    def _begun(self, record: StepRecord) -> tuple[dict[str, float], float]:
        """Its metrics, and what writing its rollouts took."""
        started = time.perf_counter()
        if self.save_rollouts and record.groups:
            write_rollouts(self.folder.rollout_file(record.step), record.groups, step=record.step)
        if record.groups and due(record.step, self._samples_every_steps):
            self.samples(record.step, [entry.group for entry in record.groups], held_out=False)
        return dict(record.metrics), time.perf_counter() - started

    def _log(self, step: int, metrics: Mapping[str, float]) -> None:
        if self.metrics is not None:
            self.metrics.append(step, metrics)
        for sink in self.sinks:
            sink.write(step, metrics)

    def samples(self, step: int, groups: Sequence[Group], *, held_out: bool = True) -> None:
        """A few rollouts as Markdown for people, of an evaluation or of a batch."""
        if not self._ranks.first:
            return
        title = f"Step {step}, {'held-out evaluation' if held_out else 'training batch'}"
        text = page(title, groups).encode("utf-8", errors="replace")
        path = self.folder.sample_file(step, held_out=held_out)
        replace_file(path, lambda file: file.write(text))

    def close(self) -> None:
        """Close every file and let go of the folder."""
        with ExitStack() as stack:  # each is tried, whatever becomes of the others
            if self._held is not None:
                stack.callback(self._held.release)
            for sink in self.sinks:
                stack.callback(sink.close)
            if self.metrics is not None:
                stack.callback(self.metrics.close)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
