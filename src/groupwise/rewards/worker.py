"""The process that a reward function runs in when it may be stopped: finds the function, then answers calls.

It is started by `workers`, which hands it one end of a socket. It leads a session of its own, so that it and
whatever it starts can be ended together, and so that Ctrl-C reaches the trainer alone, which then ends it. When the
trainer is gone, it ends itself.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from groupwise import registry
from groupwise.errors import IN_WORKER
from groupwise.rewards.calling import Outcome, call_all, make_call


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which function a worker is for."""

    label: str
    """The reward's name, for messages."""
    name: str | None
    """As in the configuration: a scorer, `module:function` or `file.py:function`; None for `pickled`."""
    package: str
    """The registry that scorers are in."""
    base: Path
    """The folder that files and modules are looked up from."""
    pickled: bytes | None = None
    """A function that was given in Python, as its module and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Calls to be made by one worker, the async ones together."""

    arguments: Sequence[Mapping[str, Any]]
    """The keywords of each call."""
    timeout_seconds: float | None
    """Longest that an awaitable may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What a worker says first."""

    error: Exception | None = None
    """Why the function could not be found."""
    awaitable: bool = False
    """The function is async, so that the worker itself stops what takes too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a worker says to a request."""

    outcomes: Sequence[Outcome] = ()
    """One per call."""
    interruption: BaseException | None = None
    """What the function raised to end the run: Ctrl-C, `SystemExit`, cancellation."""


def serve(descriptor: int) -> None:
    """Answer requests until the other end is closed.

    Args:
        descriptor: of the socket to the trainer.
    """
    connection = Connection(descriptor)
    wanted: Wanted = connection.recv()
    try:
        function = find_function(wanted)
    except Exception as error:
        connection.send(Ready(error=_portable(error)))
        return
    called = function if inspect.isroutine(function) else type(function).__call__
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, requests), daemon=True).start()
    connection.send(
        Ready(awaitable=inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called))
    )
    while True:
        connection.send_bytes(_answer(function, requests.get()))


def find_function(wanted: Wanted) -> Callable[..., Any]:
    """The function that a worker is for.

    Raises:
        ConfigError: as `registry.find`.
    """
    if wanted.name is not None:
        return registry.find(wanted.package, wanted.name, base=wanted.base)
    function: Callable[..., Any] = pickle.loads(wanted.pickled or b"")
    return function


def _listen(connection: Connection, requests: queue.SimpleQueue[Request]) -> None:
    """Read on even while a call runs, so that it is noticed when the trainer is gone."""
    while True:
        try:
            requests.put(connection.recv())
        except (EOFError, OSError):
            os.killpg(os.getpgrp(), signal.SIGKILL)


def _answer(function: Callable[..., Any], request: Request) -> bytes:
    try:
        calls = [make_call(function, arguments) for arguments in request.arguments]
        outcomes = call_all(calls, timeout_seconds=request.timeout_seconds)
    except BaseException as error:
        plain = error if type(error) in _PLAIN else KeyboardInterrupt()
        frame = traceback.extract_tb(error.__traceback__)[-1]  # tracebacks stay behind when an error is sent
        plain.add_note(f"{IN_WORKER}{frame.filename} line {frame.lineno}")
        return pickle.dumps(Reply(interruption=plain))
    return pickle.dumps(Reply(outcomes=[_sendable(outcome) for outcome in outcomes]))


_PLAIN = (KeyboardInterrupt, SystemExit, asyncio.CancelledError)


def _sendable(outcome: Outcome) -> Outcome:
    """The same outcome with a value and an error that can go through a pipe."""
    value = outcome.value
    if not isinstance(value, list | tuple) and callable(getattr(value, "tolist", None)):
        value = value.tolist()
    error = None if outcome.error is None else _portable(outcome.error)
    try:
        pickle.dumps(value)
    except Exception:
        value = None
        error = TypeError(
            f"it returned a {type(outcome.value).__name__} that cannot leave its worker process; return a list of "
            "numbers"
        )
    return Outcome(
        value=value,
        error=error,
        lost=outcome.lost,
        awaited=outcome.awaited,
        seconds=outcome.seconds,
        notes=outcome.notes,
    )


def _portable(error: Exception) -> Exception:
    """The error itself, or one of like text where it cannot be pickled; with its traceback as a note."""
    lines = "".join(traceback.format_exception(error)).rstrip()
    try:
        copy = pickle.loads(pickle.dumps(error))
        if type(copy) is not type(error):
            raise TypeError
    except Exception:
        copy = RuntimeError(f"{type(error).__name__}: {error}")
    copy.add_note(f"In the worker process:\n{lines}")
    assert isinstance(copy, Exception)
    return copy
