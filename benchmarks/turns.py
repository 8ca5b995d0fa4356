"""Processes that take turns, so that what is compared is measured next to each other on a machine that others use.

The one who leads starts each side in its own process and hands it one request at a time; a side computes only while
it has been asked and not yet answered. Requests and answers are lines of JSON over a socket, so that a library may
print what it likes. Standard library only: a side runs in its library's environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

_SOCKET = "GROUPWISE_BENCH_SOCKET"


class SideError(RuntimeError):
    """A side ended instead of answering."""


class Side:
    """The leader's end: a process that waits for requests."""

    def __init__(
        self, name: str, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path
    ) -> None:
        """Start the process; what it prints goes to `log`."""
        self.name, self.log = name, log
        ours, theirs = socket.socketpair()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as out, theirs:
            self.process = subprocess.Popen(
                list(command),
                env={**env, _SOCKET: str(theirs.fileno())},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C reaches the leader alone, which then ends its sides
            )
        self._socket = ours
        self._lines = ours.makefile("rw", encoding="utf-8", newline="\n")

    def ask(self, do: str, **given: Any) -> dict[str, Any]:
        """One turn: the answer to a request.

        Raises:
            SideError: the process ended; says how, and what its log ends with.
        """
        try:
            self._lines.write(json.dumps({"do": do, **given}) + "\n")
            self._lines.flush()
            line = self._lines.readline()
        except OSError:
            line = ""
        if not line:
            code = self.process.wait()
            raise SideError(
                f"{self.name} ended with code {code} when asked to {do}; {self.log} says:\n{self._tail()}"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """No more turns: the side sees the end of its requests and ends; one that does not is ended."""
        with contextlib.suppress(OSError):  # a request that the side did not live to read
            self._lines.close()
        self._socket.close()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def __enter__(self) -> Side:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.process.terminate()
        self.close()


class Seat:
    """The side's end, in the process that the leader started."""

    def __init__(self) -> None:
        self._socket = socket.socket(fileno=int(os.environ.pop(_SOCKET)))
        self._socket.set_inheritable(
            False
        )  # else a child of the side would keep it open after the side ended
        self._lines = self._socket.makefile("rw", encoding="utf-8", newline="\n")

    def wait(self) -> dict[str, Any] | None:
        """The next request; None when there are no more."""
        line = self._lines.readline()
        return json.loads(line) if line else None

    def answer(self, **result: Any) -> None:
        """Hand the turn back."""
        self._lines.write(json.dumps(result) + "\n")
        self._lines.flush()
