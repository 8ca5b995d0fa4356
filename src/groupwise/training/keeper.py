"""Keeps a run from being lost: knows where it stands, writes its checkpoints, and ends it cleanly when asked to."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from groupwise.checkpoint.manifest import Position, verify
from groupwise.checkpoint.save import (
    healthy_checkpoints,
    refuse_without_space,
    remove_leftovers,
    rotate,
    save_checkpoint,
    space_needed,
)
from groupwise.checkpoint.state import Stateful
from groupwise.config.checkpoint import CheckpointConfig
from groupwise.errors import CheckpointError, TrainingError
from groupwise.health.actions import Actions
from groupwise.health.metric import Metric
from groupwise.health.watch import Watch
from groupwise.model.load import Policy
from groupwise.records.run_folder import RunFolder
from groupwise.training.distributed import ALONE, Ranks
from groupwise.training.in_use import BatchInUse
from groupwise.training.signals import Break, Interrupted, Requests

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Snapshot:
    """A whole state of the run, good until an update changes the weights."""

    position: Position
    parts: Mapping[str, Mapping[str, Any]]
    batch: BatchInUse | None


class Keeper:
    """Where a run stands, and what is on disk of it. Several ranks stand in the same place, and the first writes.

    Attributes:
        step: steps finished.
        batch: the batch in use, when the run was taken up between two of its updates; else None.
        saved: position of the last checkpoint written or resumed from; None before the first.
        healthy: whoever watches the run sets this to False while something is wrong; the last checkpoint of a healthy
            run is kept.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: CheckpointConfig,
        policy: Policy,
        *,
        actions: Actions | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        """Take the places; nothing is written yet.

        Args:
            folder: of the run.
            config: when checkpoints are written, and which stay.
            policy: whose weights they hold.
            actions: that may go back to one, for which two healthy ones stay, and that of the start holds weights.
            ranks: who train together.
        """
        self._ranks = ranks
        self.step = 0
        self.batch: BatchInUse | None = None
        self.saved: Position | None = None
        self.healthy = True
        self._folder, self._config, self._policy = folder, config, policy
        self._back_every = config.every_steps if actions is not None and actions.goes_back else None
        if actions is not None:
            actions.healthy_steps = self.healthy_steps
        self._ill: str | None = None
        self._gone_back = False
        self._best: float | None = None
        self._metric: float | None = None
        self._new_best = False
        self._saved_at = time.monotonic()
        self._snapshot: _Snapshot | None = None
        self._requests = Requests(config.grace_seconds)

    def state(self) -> dict[str, Any]:
        """See `checkpoint.state.Stateful`. The batch without its rollouts, which have a file of their own."""
        return {
            "step": self.step,
            "best": self._best,
            "metric": self._metric,
            "healthy": self.healthy,
            "batch": None if self.batch is None else self.batch.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `checkpoint.state.Stateful`. The batch in use is put back by whoever reads its rollouts."""
        self.step, self._best, self._metric = state["step"], state["best"], state["metric"]
        self.healthy = state["healthy"]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While the run trains: Ctrl-C once and SIGTERM end it at a clean point with a checkpoint.

        Raises:
            Interrupted: it ended so.
        """
        if not self._config.save:
            yield
            return
        with self._requests.heard():
            try:
                yield
            except Break:
                assert self._snapshot is not None  # nothing breaks in before there is one
                self._save(self._snapshot)
                raise Interrupted from None

    def changing(self) -> Any:
        """Inside, weights change, so that no signal breaks in; `border` is to follow."""
        return self._requests.unbroken()

    def border(self, parts: Mapping[str, Stateful], batch: BatchInUse | None = None) -> None:
        """The state of the run is whole: write a checkpoint if one is due, and end the run if that was asked for.

        Args:
            parts: of the run.
            batch: the batch in use, between two of its updates; None between two steps.

        Raises:
            Interrupted: the run was asked to end.
            TrainingError: the watch over the run asks to end it.
            CheckpointError: the first or the last checkpoint cannot be written. Another one that cannot is told, and
                tried again when the next is due.
        """
        self.batch = batch
        if not self._config.save and self._ill is not None:
            raise TrainingError(f"ended by health.stop, without a checkpoint: {self._ill}")
        if not self._config.save or (batch is not None and self.saved is None):
            return  # the start comes before the first batch; without it, somebody takes steps one by one
        self._requests.may_break = False
        snapshot = _Snapshot(
            position=Position(self.step, 0 if batch is None else batch.done),
            parts={name: part.state() for name, part in parts.items()},
            batch=batch,
        )
        self._snapshot = snapshot
        stop, due = self._agreed(snapshot.position)
        if stop or self.saved is None or self._ill is not None or self._gone_back:
            self._save(snapshot)
        elif due:
            try:
                self._save(snapshot)
            except CheckpointError as error:
                self._saved_at = time.monotonic()
                _log.warning("%s (the run goes on; its last checkpoint is that of %s)", error, self.saved)
        if self._ill is not None:
            raise TrainingError(
                f"ended by health.stop: {self._ill}; the run is saved at {self.saved} and goes on with --resume"
            )
        self._gone_back = False
        if stop:
            raise Interrupted
        self._requests.may_break = self._ranks.alone  # else the others would wait for this one

    def finished(self, step: int, metrics: Mapping[str, Metric], watch: Watch) -> None:
        """A step is finished and recorded, with such metrics, and watched."""
        self.step, self.batch = step, None
        self.healthy, self._ill = watch.healthy, watch.ill
        self._gone_back = watch.back is not None
        name = self._config.best_metric
        measured = metrics.get(name) if name is not None else None
        self._metric = None if measured is None or measured.empty else measured.value
        self._new_best = self._metric is not None and (self._best is None or self._metric > self._best)
        if self._new_best:
            self._best = self._metric

    def healthy_steps(self) -> list[int]:
        """The steps of the checkpoints that the run may go back to, in order.

        Of those that are written by count of steps, and not by the clock, so that a run that is repeated goes back to
        the same; healthy when they were written, and whole.
        """
        return [] if self._back_every is None else self._ranks.from_first(self._healthy_steps)

    def _healthy_steps(self) -> list[int]:
        assert self._back_every is not None
        steps = []
        for position, path in healthy_checkpoints(self._folder.checkpoints_dir, every=self._back_every):
            try:
                verify(path)
            except CheckpointError as error:
                _log.warning("%s (the run does not go back to it)", error)
            else:
                steps.append(position.step)
        return steps

    def end(self) -> None:
        """The last step is finished: write the last checkpoint, unless it is there.

        Raises:
            CheckpointError: it cannot be written.
        """
        if self._config.save and self._snapshot is not None:
            self._save(self._snapshot)

    def _agreed(self, position: Position) -> tuple[bool, bool]:
        """Whether the run is to end here, which any rank may have been asked for, and whether a checkpoint is due,
        which the first one's clock says."""
        heard = self._ranks.gather((self._requests.stop, self._due(position)))
        asked = {request for request, _ in heard}
        return "update" in asked or ("step" in asked and position.update == 0), heard[0][1]

    def _due(self, position: Position) -> bool:
        config = self._config
        every, minutes = config.every_steps, config.every_minutes
        by_steps = every is not None and position.update == 0 and position.step % every == 0
        by_time = minutes is not None and time.monotonic() - self._saved_at >= 60 * minutes
        return by_steps or by_time or (self._new_best and position.update == 0)

    def _save(self, snapshot: _Snapshot) -> None:
        if snapshot.position == self.saved:
            return
        root = self._folder.checkpoints_dir
        start = snapshot.position == Position(0)
        self._ranks.from_first(lambda: self._make_ready(start))
        save_checkpoint(
            root,
            snapshot.position,
            policy=None if start and self._back_every is None else self._policy,
            parts=snapshot.parts,
            batch=None if snapshot.batch is None else snapshot.batch.groups,
            metric=self._metric if snapshot.batch is None else None,
            healthy=self.healthy,
            by=self._ranks.from_first,
        )
        self.saved, self._saved_at, self._new_best = snapshot.position, time.monotonic(), False
        if self._ranks.first:
            rotate(root, keep_last=self._config.keep_last, back_every=self._back_every)

    def _make_ready(self, start: bool) -> None:
        root = self._folder.checkpoints_dir
        if start:  # better refused now than after hours
            refuse_without_space(root, space_needed(self._policy))
        remove_leftovers(root)
        if self._folder.metrics_file.exists():
            with self._folder.metrics_file.open("rb") as file:
                os.fsync(file.fileno())  # the checkpoint counts on these lines, also after the loss of power
