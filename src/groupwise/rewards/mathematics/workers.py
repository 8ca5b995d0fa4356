"""The processes that compare expressions: started when first needed, used again, replaced when one is lost.

They are plain child processes with pipes, so they work from any thread and from any process, also from one that may
have no children of `multiprocessing`. A forked process starts its own.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from groupwise.errors import RewardError, raised

MOST = 4
"""Most processes at once."""
START_SECONDS = 120.0
"""Longest that a process may take to start; a machine under load imports slowly."""
WAIT_SECONDS = 30.0
"""Longest wait for an answer beyond ten times its limit on processor time, before the process is given up."""
END_SECONDS = 5.0
"""Longest that a process may take to end by itself before it is killed."""
PATIENCE = 20
"""Answers of one call that may run into the limit; those after them get a tenth of the time."""


@dataclass(frozen=True, slots=True)
class Request:
    """One comparison."""

    gold: str
    """The text of the data."""
    answer: str | None
    """What was found; None to ask whether the gold can be read."""
    boxes: tuple[str, ...] = ()
    """See `unstated.Found`."""
    warm: bool = False
    """True when math-verify will be asked, so that its import is not timed."""


class Worker:
    """One process and its pipes. Used by one thread at a time."""

    def __init__(self) -> None:
        source = str(Path(__file__).parents[3])
        path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH", "")]))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "groupwise.rewards.mathematics.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C is for the run, and a kill reaches its children too
            )
        except OSError as error:
            raise RewardError(
                f"math_answer could not start a process to compare expressions in: {raised(error)}; allow the run to "
                "start processes"
            ) from error
        self._buffer = b""
        self._last = 0
        if self._read(START_SECONDS) is None:
            self.kill()
            raise RewardError(
                "math_answer started a process to compare expressions in, and it did not answer; try "
                f"{sys.executable} -m groupwise.rewards.mathematics.worker to see why"
            )

    def ask(self, request: Request, seconds: float) -> str | None:
        """The verdict; None when the process gave none and had to be killed."""
        self._last += 1
        line = {
            "id": self._last,
            "gold": request.gold,
            "answer": request.answer,
            "boxes": request.boxes,
            "seconds": seconds,
        }
        if request.warm:
            line["warm"] = True
        deadline = WAIT_SECONDS + 10 * seconds
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            self.kill()
            return None
        reply = self._read(deadline)
        if reply is None or reply["id"] != self._last:
            self.kill()
            return None
        return str(reply["verdict"])

    def _read(self, seconds: float) -> dict[str, object] | None:
        """The next line; None when the process ended or says nothing in time."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        end = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
            chunk = os.read(descriptor, 65536) if ready else b""
            if not chunk:
                return None
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        reply: dict[str, object] = json.loads(line)
        return reply

    def kill(self) -> None:
        """End the process and its child, and wait for it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.terminate()  # on which it ends its child and waits for that, so that no zombie is left
            self._process.wait(END_SECONDS)
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        self._process.wait()


class Workers:
    """A few processes, started one by one as they are needed."""

    def __init__(self) -> None:
        self._idle: list[Worker] = []
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(MOST)

    def judge(self, requests: Sequence[Request], *, seconds: float) -> list[str]:
        """The verdict of each: `same`, `different`, `unreadable`, `time`, `memory`, `died`, or `fault: ` and a reason.

        Args:
            requests: comparisons, in any number.
            seconds: processor time that each may take.

        Raises:
            RewardError: no process can be started.
        """
        if not requests:
            return []
        lanes = min(MOST, len(requests), os.cpu_count() or 1)
        left = list(enumerate(requests))[::-1]
        verdicts = [""] * len(requests)
        slow = 0

        def run() -> None:
            nonlocal slow
            while True:
                with self._lock:
                    if not left:
                        return
                    i, request = left.pop()
                    allowed = seconds if slow < PATIENCE else seconds / 10
                verdicts[i] = self._one(request, allowed)
                if verdicts[i] in ("time", "memory", "died"):
                    with self._lock:
                        slow += 1

        if lanes == 1:
            run()
        else:
            with ThreadPoolExecutor(lanes, thread_name_prefix="groupwise-mathematics") as threads:
                for future in [threads.submit(run) for _ in range(lanes)]:
                    future.result()
        return verdicts

    def _one(self, request: Request, seconds: float) -> str:
        with self._places:
            for _ in range(2):  # once more with a fresh process, should one have been lost for another reason
                with self._lock:
                    worker = self._idle.pop() if self._idle else None
                worker = worker or Worker()
                verdict = worker.ask(request, seconds)
                if verdict is not None:
                    with self._lock:
                        self._idle.append(worker)
                    return verdict
        return "died"

    def close(self) -> None:
        """End all processes that wait; a later call starts new ones."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.kill()


_workers = Workers()


def shared() -> Workers:
    """The processes of this one."""
    return _workers


def _forget() -> None:
    """In a forked child the pipes are the parent's, so it starts over without them."""
    global _workers
    _workers = Workers()


atexit.register(lambda: _workers.close())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
