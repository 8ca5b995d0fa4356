"""One sandbox, from its start to its end."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from groupwise.errors import SandboxError
from groupwise.rewards.sandbox.inside import plain
from groupwise.rewards.sandbox.interpreter import find_interpreter
from groupwise.rewards.sandbox.isolation import Isolation, environment, launch, refusal

_FRAME = 96 << 20
"""Bytes of the longest message that is read: a script's two streams, and more than any verdict."""
_BOOT_SECONDS = 60.0
_FREE_SECONDS = 2.0


class GoneError(Exception):
    """The cell ended."""


class LateError(Exception):
    """The cell did not answer in time."""


class Cell:
    """A started sandbox that does one job after another. Ended by `end`, and at the latest with this process.

    Attributes:
        jobs: how many it has been given so far.
        over: what it was ended for by the watch, as a clause; None while it keeps within its limits.
    """

    def __init__(self, isolation: Isolation, python: str | None, disk_mb: int, *, private_user: bool):
        interpreter = find_interpreter(python)
        ours, theirs = socket.socketpair()
        self._said = os.memfd_create("said")
        self.isolation = isolation
        self.over: str | None = None
        self._lock = threading.Lock()
        self._dead = False
        try:
            how = launch(
                isolation,
                interpreter,
                control=theirs.fileno(),
                disk_mb=disk_mb,
                private_user=private_user,
            )
            self._folder = how.folder
            self._process = subprocess.Popen(
                how.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                env=environment(isolation),
                pass_fds=(theirs.fileno(), *how.descriptors),
                start_new_session=True,
                cwd="/",
            )
            for descriptor in how.descriptors:
                os.close(descriptor)
        except BaseException:
            ours.close()
            os.close(self._said)
            raise
        finally:
            theirs.close()
        self._control = ours
        self.jobs = 0

    def wait_until_ready(self) -> None:
        """Wait until it has given up everything and asks for its job.

        Raises:
            SandboxError: it does not come up; with what it said.
        """
        try:
            answer = self.receive(time.monotonic() + _BOOT_SECONDS)
        except LateError:
            answer = f"it does not come up within {_BOOT_SECONDS:.0f} s"
        except GoneError:
            answer = self.said()
        if answer != "ready":
            raise refusal(self.isolation, str(answer) or "it ended without a word")

    def is_free(self) -> bool:
        """Stop its job and hear whether it is clean for the next."""
        try:
            self.send("stop")
            deadline = time.monotonic() + _FREE_SECONDS
            while self.over is None:
                if self.receive(deadline) == "free":
                    return True
        except (GoneError, LateError):
            pass
        return False

    def said(self) -> str:
        """The last line that it wrote to its standard error before its job, 300 characters at most."""
        text = os.pread(self._said, 20_000, 0).decode("utf-8", "replace").strip()
        return " ".join(text.splitlines()[-1:])[-300:]

    def send(self, job: Any, *links: socket.socket) -> None:
        """Give it a job, and with it ends of sockets.

        Raises:
            GoneError: it has ended.
        """
        body = plain.encode(job, _refuse).encode("utf-8", "surrogatepass")
        try:
            self._control.settimeout(_BOOT_SECONDS)
            socket.send_fds(self._control, [b"+"], [link.fileno() for link in links])
            self._control.sendall(b"%08x" % len(body) + body)
        except OSError:
            raise GoneError from None

    def receive(self, deadline: float) -> Any:
        """The next message.

        Args:
            deadline: of `time.monotonic`, in seconds.

        Raises:
            LateError: there is none by then.
            GoneError: it has ended, or sent what is no message.
        """
        try:
            length = int(self._exactly(8, deadline), 16)
            if not 0 <= length <= _FRAME:
                raise GoneError
            return plain.decode(self._exactly(length, deadline).decode("utf-8", "surrogatepass"), _refuse)
        except TimeoutError:
            raise LateError from None
        except (OSError, ValueError, RecursionError):
            raise GoneError from None

    def _exactly(self, count: int, deadline: float) -> bytes:
        parts = []
        while count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._control.settimeout(left)
            part = self._control.recv(min(count, 1 << 20))
            if not part:
                raise GoneError
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def processes(self) -> list[int]:
        """The ids, on this host, of everything that runs in it, its own first."""
        return tree(self._process.pid)

    def folder(self, inner: int) -> str:
        """Where its working folder is seen from here; `inner` is the id of a process inside."""
        return str(self._folder) if self._folder is not None else f"/proc/{inner}/root/tmp"

    @property
    def own_files(self) -> Path | None:
        """Its working folder where that lies on the host's disk; None where it is memory of its own."""
        return self._folder

    def kill(self, over: str | None = None) -> None:
        """End everything in it and wait until it is gone.

        Args:
            over: what for, where the watch does it.
        """
        with self._lock:
            if self._dead:
                return
            self._dead = True
            self.over = over
            first = children(self._process.pid)
            handles = []
            for pid in first:  # process 1 of its namespace takes all others with it
                try:
                    handles.append(os.pidfd_open(pid))
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    continue
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for handle in handles:
                select.select([handle], [], [], 10)
                os.close(handle)

    def end(self) -> None:
        """Kill it and forget what is left of it here."""
        self.kill()
        self._control.close()
        if self._said >= 0:
            os.close(self._said)
            self._said = -1
        if self._folder is not None:
            _remove(self._folder)


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:  # a program may leave folders deeper than Python descends
        subprocess.run(["rm", "-rf", "--", str(folder)], check=False, capture_output=True)


def _refuse(value: Any) -> Any:
    raise ValueError(f"{value!r:.60} is not plain")


def children(pid: int) -> list[int]:
    """The processes that a process has started and that live."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    except (OSError, ValueError):
        pass
    return found


def tree(pid: int) -> list[int]:
    """A process and all that came of it."""
    found = [pid]
    for one in found:
        found += children(one)
    return found


@functools.cache
def private_user(python: str | None) -> bool:
    """True where bubblewrap works by becoming a private user, False where it works in a user namespace.

    Raises:
        SandboxError: it works in neither way; with what it said.
    """
    ways = (True, False) if os.geteuid() == 0 else (False,)
    for way in ways:
        try:
            _try("bubblewrap", python, way)
        except SandboxError:
            if way == ways[-1]:
                raise
        else:
            return way
    raise AssertionError  # the last way returns or raises


@functools.cache
def _restricted_works(python: str | None) -> None:
    _try("restricted", python, False)


def check(isolation: Isolation, python: str | None) -> None:
    """Find out whether programs can be isolated in this way, by starting a sandbox.

    Raises:
        SandboxError: they cannot; with the remedy.
    """
    if isolation == "bubblewrap":
        private_user(python)
    else:
        _restricted_works(python)


def _try(isolation: Isolation, python: str | None, way: bool) -> None:
    cell = Cell(isolation, python, 1, private_user=way)
    try:
        cell.wait_until_ready()
    finally:
        cell.end()
