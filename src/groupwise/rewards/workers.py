"""Worker processes for reward functions that may be slow, get stuck or end their own process.

A thread cannot be stopped, so a function with a time limit runs in a process. A worker is a fresh interpreter, not a
fork: it holds none of the trainer's memory, threads or devices, imports the function by name, and keeps it for the
next batch.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from groupwise.errors import ConfigError, GroupwiseError, RewardError, raised
from groupwise.rewards.calling import Outcome, too_long
from groupwise.rewards.worker import Ready, Reply, Request, Wanted

START_SECONDS = 300.0
"""Longest that a worker may take to import the function."""
GRACE_SECONDS = 1.0
"""What a worker gets beyond its limit to stop an async function by itself, so that it need not be ended."""
LOST_IN_A_ROW = 8
"""After so many calls without an answer, and none with one, the rest of a batch is not tried."""

_COMMAND = (
    "import sys; sys.path[:] = {path!r}; from groupwise.rewards.worker import serve; serve({descriptor})"
)


class _Worker:
    """One process, its socket, and what it is doing."""

    def __init__(self, wanted: Wanted) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = _COMMAND.format(path=sys.path, descriptor=theirs.fileno())
            self.process = subprocess.Popen(
                [sys.executable, "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what a function prints must not get into results that are written to the standard output
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.connection = Connection(ours.detach())
        self.ready = False
        self.awaitable = False
        self.request: int | None = None  # which of the requests it works on
        self.started = time.monotonic()  # when it was started, or was given the request
        self.connection.send(wanted)

    def end(self) -> None:
        """End the process and whatever it started, and reap it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.connection.close()


def _end_all(workers: list[_Worker], owner: int) -> None:
    while (
        workers and os.getpid() == owner
    ):  # a forked child of ours knows of them too, and they are not its own
        workers.pop().end()


class WorkerPool:
    """Some processes that answer calls of one function. They are started when they are first needed.

    Args:
        wanted: the function.
        count: how many processes.
        timeout_seconds: longest that one call may take; None for no limit.
    """

    def __init__(self, wanted: Wanted, *, count: int, timeout_seconds: float | None) -> None:
        self.count = count
        self.timeout_seconds = timeout_seconds
        self._wanted = wanted
        self._workers: list[_Worker] = []
        self._waiting: deque[int] = deque()
        self._requests: list[Request] = []
        self._messages: list[bytes] = []
        self._outcomes: dict[int, list[Outcome]] = {}
        self._close = weakref.finalize(self, _end_all, self._workers, os.getpid())

    def begin(self, requests: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        """Hand out requests, and go on while they are worked on; `finish` brings back the outcomes.

        Args:
            requests: per request the keywords of its calls, which one worker makes.

        Raises:
            RewardError: what a call is given cannot be sent to another process, or no worker can be started.
        """
        self._requests = [Request(arguments=r, timeout_seconds=self.timeout_seconds) for r in requests]
        self._outcomes = {}
        try:
            self._messages = [pickle.dumps(request) for request in self._requests]
        except Exception as error:
            raise RewardError(
                f"the reward {self._wanted.label!r} runs in worker processes, but what it is called with cannot be "
                f"sent there ({raised(error)}); keep to text, numbers, lists and mappings in the data, or remove its "
                "workers and timeout_seconds"
            ) from error
        self._waiting = deque(range(len(requests)))
        with self._intact():
            self._hand_out()

    def finish(self) -> list[list[Outcome]]:
        """Wait for the requests that were begun.

        A call that takes longer than the limit, or whose process ends, is an outcome that is `lost`; its worker is
        replaced, and the others are not touched.

        Returns:
            Per request, one outcome per call, in order.

        Raises:
            RewardError: a worker could not be started.
            BaseException: what the function raised to end the run (Ctrl-C, `SystemExit`, cancellation) is passed on.
        """
        answered, lost = False, 0
        with self._intact():
            while len(self._outcomes) < len(self._requests):
                self._hand_out()
                for worker in self._await():
                    done = self._hear(worker)
                    if done is None:
                        continue
                    found = not any(outcome.lost for outcome in self._outcomes[done])
                    answered, lost = answered or found, 0 if found else lost + 1
                if not answered and lost >= LOST_IN_A_ROW:
                    self._give_up()
        return [self._outcomes[i] for i in range(len(self._requests))]

    def abandon(self) -> None:
        """End the workers that are at work, since nobody waits for them any more."""
        self._waiting.clear()
        for worker in [w for w in self._workers if w.request is not None or not w.ready]:
            self._drop(worker)

    def close(self) -> None:
        """End every worker."""
        self._close()
        self._close = weakref.finalize(self, _end_all, self._workers, os.getpid())

    @contextlib.contextmanager
    def _intact(self) -> Iterator[None]:
        """What interrupts us leaves no worker with half a conversation."""
        try:
            yield
        except BaseException:
            self.abandon()
            raise

    def _hand_out(self) -> None:
        """Give what waits to workers that are free, and start workers for the rest."""
        for worker in list(self._workers):
            if self._waiting and worker.ready and worker.request is None:
                number = self._waiting.popleft()
                worker.request, worker.started = number, time.monotonic()
                try:
                    worker.connection.send_bytes(self._messages[number])
                except OSError:  # it ended while it was idle, which is no fault of this request
                    self._drop(worker)
                    self._waiting.appendleft(number)
        starting = sum(not worker.ready for worker in self._workers)
        while len(self._workers) < self.count and starting < len(self._waiting):
            try:
                self._workers.append(_Worker(self._wanted))
            except OSError as error:
                raise RewardError(
                    f"no worker process could be started for the reward {self._wanted.label!r}: {error}"
                ) from error
            starting += 1

    def _await(self) -> list[_Worker]:
        """The workers that have said something, ended, or run out of time."""
        busy = [w for w in self._workers if w.request is not None or not w.ready]
        limits = [limit for w in busy if (limit := self._deadline(w)) is not None]
        remaining = max(0.0, min(limits) - time.monotonic()) if limits else None
        heard = set(map(id, wait([w.connection for w in busy], timeout=remaining)))
        now = time.monotonic()
        return [
            w
            for w in busy
            if id(w.connection) in heard or ((limit := self._deadline(w)) is not None and limit <= now)
        ]

    def _deadline(self, worker: _Worker) -> float | None:
        if not worker.ready:
            return worker.started + START_SECONDS
        if self.timeout_seconds is None:
            return None
        return worker.started + self.timeout_seconds + (GRACE_SECONDS if worker.awaitable else 0.0)

    def _hear(self, worker: _Worker) -> int | None:
        """Take what a worker has to say; the number of the request that is over by it, or None."""
        number = worker.request
        if not worker.connection.poll():
            self._drop(worker)
            if number is None:
                raise RewardError(
                    f"a worker process of the reward {self._wanted.label!r} did not start within "
                    f"{START_SECONDS:g} seconds; what does its module do when it is imported?"
                )
            assert self.timeout_seconds is not None
            return self._lose(number, too_long(self.timeout_seconds))
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            self._drop(worker)
            ended = ChildProcessError(
                f"the worker process that it ran in {_end_of(worker.process.returncode)}"
            )
            if number is None:
                raise RewardError(
                    f"the reward {self._wanted.label!r} cannot be run in worker processes: {ended} at its start"
                ) from None
            return self._lose(number, ended)
        if isinstance(message, Ready):
            if message.error is not None:
                self._drop(worker)
                if isinstance(message.error, GroupwiseError):
                    raise message.error
                raise ConfigError(
                    f"the reward {self._wanted.label!r} cannot be run in worker processes: {raised(message.error)}"
                ) from message.error
            worker.ready, worker.awaitable = True, message.awaitable
            return None
        assert isinstance(message, Reply)
        worker.request = None
        if message.interruption is not None:
            raise message.interruption
        assert number is not None
        self._outcomes[number] = list(message.outcomes)
        return number

    def _lose(self, number: int, error: Exception) -> int:
        count = len(self._requests[number].arguments)
        self._outcomes[number] = [Outcome(error=error, lost=True)] * count
        return number

    def _give_up(self) -> None:
        """Nothing has come back so far, so the rest would only cost its time limit each."""
        while self._waiting:
            number = self._waiting.popleft()
            self._lose(
                number, TimeoutError(f"not tried, since none of the first {LOST_IN_A_ROW} gave an answer")
            )

    def _drop(self, worker: _Worker) -> None:
        worker.end()
        self._workers.remove(worker)


def _end_of(code: int) -> str:
    if code >= 0:
        return f"ended itself with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
