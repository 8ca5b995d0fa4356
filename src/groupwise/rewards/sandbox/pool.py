"""Sandboxes that wait for programs, so that grading a short program takes little more than running it."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from groupwise.rewards.sandbox.cell import Cell, check, private_user
from groupwise.rewards.sandbox.isolation import Isolation
from groupwise.rewards.sandbox.limits import Limits
from groupwise.rewards.sandbox.watch import Watch

_IDLE_SECONDS = 20.0
"""After so long without a program, what waits is ended."""
_MOST_JOBS = 200
"""Jobs that one sandbox does before another takes its place."""


class Pool:
    """Cells of one kind. Each does one job at a time, and goes back only when it says that it is clean again.

    The thread that starts cells lives as long as the pool, since bubblewrap ends a sandbox with the thread that
    started it.
    """

    def __init__(self, isolation: Isolation, python: str | None, disk_mb: int) -> None:
        check(isolation, python)
        self._isolation = isolation
        self._python = python
        self._disk_mb = disk_mb
        self._private = isolation == "bubblewrap" and private_user(python)
        self._idle: list[Cell] = []
        self._wanted = 0
        self._started: list[Cell | Exception] = []
        self._change = threading.Condition()
        self._open = True
        self._owner = os.getpid()
        self._watch = Watch()
        threading.Thread(target=self._start, name="groupwise-sandbox-pool", daemon=True).start()

    @contextmanager
    def cell(self, limits: Limits) -> Iterator[Cell]:
        """A cell for one job, watched while it is in use. Whatever goes wrong in between ends it.

        Raises:
            SandboxError: it does not come up.
        """
        cell = self._take()
        self._watch.add(cell, limits)
        clean = False
        try:
            cell.jobs += 1
            yield cell
            clean = cell.over is None and cell.jobs < _MOST_JOBS and cell.is_free()
        finally:
            self._watch.remove(cell)
            with self._change:
                kept = clean and self._open and cell.over is None
                if kept:
                    self._idle.append(cell)
                    self._change.notify_all()
            if not kept:
                cell.end()

    def _take(self) -> Cell:
        with self._change:
            if self._idle:
                return self._idle.pop()
            self._wanted += 1
            self._change.notify_all()
            while not self._started:
                self._change.wait()
            cell = self._started.pop()
        if isinstance(cell, Exception):
            raise cell
        try:
            cell.wait_until_ready()
        except BaseException:
            cell.end()
            raise
        return cell

    def _start(self) -> None:
        """Start what is wanted, and end what has waited for too long."""
        while True:
            with self._change:
                while self._open and not self._wanted:
                    if not self._change.wait(_IDLE_SECONDS if self._idle else None):
                        self._end_idle()
                if not self._open:
                    return
                self._wanted -= 1
            started: Cell | Exception
            try:
                started = Cell(self._isolation, self._python, self._disk_mb, private_user=self._private)
            except Exception as error:
                started = error
            with self._change:
                self._started.append(started)
                self._change.notify_all()

    def _end_idle(self) -> None:
        for cell in self._idle:
            cell.end()
        self._idle.clear()

    def close(self) -> None:
        """End everything that waits."""
        with self._change:
            self._open = False
            self._change.notify_all()
            if os.getpid() == self._owner:
                self._end_idle()
        self._watch.close()


_pools: dict[tuple[int, Isolation, str | None, int], Pool] = {}
_making = threading.Lock()


def pool_for(isolation: Isolation, python: str | None, disk_mb: int) -> Pool:
    """The pool of this process for cells of one kind, made on first use and ended with the process.

    Raises:
        SandboxError: this machine cannot isolate programs in this way.
    """
    key = (os.getpid(), isolation, python, disk_mb)  # a forked process has the entries, but not the threads
    with _making:
        if key not in _pools:
            _pools[key] = Pool(isolation, python, disk_mb)
        return _pools[key]


os.register_at_fork(after_in_child=_making._at_fork_reinit)  # type: ignore[attr-defined]


@atexit.register
def close_pools() -> None:
    """End all sandboxes of this process that wait for work."""
    for (owner, *_), pool in list(_pools.items()):
        if owner == os.getpid():
            pool.close()
    _pools.clear()
