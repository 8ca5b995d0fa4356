"""Ctrl-C and SIGTERM while a run trains: it ends at a clean point, with a checkpoint."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Literal


class Interrupted(KeyboardInterrupt):
    """The run was asked to end, and did so at a clean point."""


class Break(BaseException):
    """Raised by a signal where sampling, scoring or evaluation may be given up, since a resumed run repeats it."""


class Requests:
    """What whoever started the run has asked for.

    Attributes:
        stop: None; `step`, to end when the step is finished; `update`, to end as soon as the state is whole.
        may_break: a request for `update` need not wait: nothing that changes weights is going on.
    """

    def __init__(self, grace_seconds: float) -> None:
        """`grace_seconds` after SIGTERM the process ends, whatever it is doing."""
        self.stop: Literal["step", "update"] | None = None
        self.may_break = False
        self._grace_seconds = grace_seconds
        self._timer: threading.Timer | None = None

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Inside, signals are requests. Elsewhere than in the main thread, where Python hears none, nothing happens."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, handler)
            for number, handler in ((signal.SIGINT, self._interrupt), (signal.SIGTERM, self._terminate))
        }
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)
            if self._timer is not None:
                self._timer.cancel()

    @contextmanager
    def unbroken(self) -> Iterator[None]:
        """Inside, no request breaks in; `may_break` stays off afterwards, until the state is whole again."""
        self.may_break = False
        yield

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.stop is not None:
            raise KeyboardInterrupt
        self.stop = "step"
        _tell("this step is being finished, then a checkpoint written; Ctrl-C again stops at once")

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        if self.stop == "update":
            return
        self.stop = "update"
        _tell(f"asked to end: a checkpoint is written, within {self._grace_seconds:g} seconds")
        self._timer = threading.Timer(self._grace_seconds, _give_up)
        self._timer.daemon = True
        self._timer.start()
        if self.may_break:
            self.may_break = False
            raise Break


def _give_up() -> None:
    _tell("no checkpoint could be written in the time given; the one before is whole")
    os._exit(130)


def _tell(sentence: str) -> None:
    # print could be interrupted in its own middle, and then refuses.
    with contextlib.suppress(OSError):
        os.write(2, f"\n{sentence}\n".encode())
