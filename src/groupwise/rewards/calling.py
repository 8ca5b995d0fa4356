"""Calls reward functions, plain and async, and brings back what each returned or raised."""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class Notes:
    """What one call logged; kept only if the call succeeds.

    Attributes:
        metrics: (name, value) of each call of `log_metric`, in order.
        extra_columns: the column of each call of `log_extra`, in order.
    """

    def __init__(self) -> None:
        self.metrics: list[tuple[str, float]] = []
        self.extra_columns: list[str] = []

    def log_metric(self, name: str, value: Any) -> None:
        """Note a number; TRL hands such a function to rewards that name it."""
        self.metrics.append((str(name), float(value)))

    def log_extra(self, column: str, values: Sequence[Any]) -> None:
        """Note that a column was given; its values are not kept."""
        self.extra_columns.append(str(column))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one call gave: a value, or the exception that it raised."""

    value: Any = None
    """What was returned (awaited, where it was awaitable); None when it raised."""
    error: Exception | None = None
    """What was raised; None when it returned."""
    lost: bool = False
    """True when it took too long or its process ended, so that nothing is known of the work."""
    awaited: bool = False
    """True when the function gave an awaitable, so that several calls run together."""
    seconds: float = 0.0
    """How long it took."""
    notes: Notes = field(default_factory=Notes)
    """What it logged."""


def make_call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Call:
    """The call with notes of its own, where the arguments ask for them."""
    notes = Notes()
    own = {name: getattr(notes, name) for name in ("log_metric", "log_extra") if name in arguments}
    return Call(function=functools.partial(function, **{**arguments, **own}), notes=notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a reward function, ready to be made."""

    function: Callable[[], Any]
    """Takes nothing; what it returns may be awaitable."""
    notes: Notes
    """What it logs."""


def call_all(calls: Sequence[Call], *, timeout_seconds: float | None = None) -> list[Outcome]:
    """Make every call; plain functions in order in this thread, then all async ones together.

    Async functions run on one event loop that lives in a thread of its own as long as the process, so they work
    whether or not a loop runs here, and clients and locks that they keep between calls stay bound to a live loop.

    Args:
        calls: what to call.
        timeout_seconds: longest that an awaitable may take before it is cancelled; plain functions cannot be stopped
            from here, see `workers`.

    Returns:
        One outcome per call, in order.

    Raises:
        BaseException: what is no `Exception` (Ctrl-C, `SystemExit`, cancellation) is passed on, not collected.
    """
    outcomes: dict[int, Outcome] = {}
    waiting: dict[int, Awaitable[Any]] = {}
    try:
        for i, call in enumerate(calls):
            started = time.perf_counter()
            try:
                value = call.function()
            except Exception as error:
                outcomes[i] = Outcome(error=error, seconds=time.perf_counter() - started, notes=call.notes)
                continue
            if inspect.isawaitable(value):
                waiting[i] = value
            else:
                outcomes[i] = Outcome(value=value, seconds=time.perf_counter() - started, notes=call.notes)
        if waiting:
            notes = [calls[i].notes for i in waiting]
            settled = _await_all(list(waiting.values()), notes, timeout_seconds)
            outcomes.update(zip(waiting, settled, strict=True))
    finally:
        for awaitable in waiting.values():
            if (
                inspect.iscoroutine(awaitable)
                and inspect.getcoroutinestate(awaitable) == inspect.CORO_CREATED
            ):
                awaitable.close()  # never started, since something else was interrupted
    return [outcomes[i] for i in range(len(calls))]


def too_long(timeout_seconds: float) -> TimeoutError:
    """What a call that took too long has failed with."""
    return TimeoutError(f"it took longer than timeout_seconds, {timeout_seconds:g}")


def _await_all(
    awaitables: Sequence[Awaitable[Any]], notes: Sequence[Notes], timeout_seconds: float | None
) -> list[Outcome]:
    async def settle(awaitable: Awaitable[Any], noted: Notes) -> Outcome | BaseException:
        # Everything is brought back as a value: Ctrl-C raised inside a task would end the loop and leave us waiting.
        started = time.perf_counter()
        value, failed, limit = None, None, asyncio.timeout(timeout_seconds)
        try:
            async with limit:
                value = await awaitable
        except Exception as error:
            failed = error
        except BaseException as error:
            return error
        lost = limit.expired() and isinstance(failed, TimeoutError) and timeout_seconds is not None
        if lost:
            assert timeout_seconds is not None
            failed = too_long(timeout_seconds)
        seconds = time.perf_counter() - started
        return Outcome(value=value, error=failed, lost=lost, awaited=True, seconds=seconds, notes=noted)

    async def together() -> list[Outcome | BaseException]:
        return await asyncio.gather(*(settle(a, n) for a, n in zip(awaitables, notes, strict=True)))

    future = asyncio.run_coroutine_threadsafe(together(), _loop())
    try:
        settled = future.result()
    except BaseException:
        future.cancel()
        raise
    outcomes = []
    for item in settled:
        if isinstance(item, BaseException):
            raise item
        outcomes.append(item)
    return outcomes


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    stopping = threading.Event()

    def serve() -> None:
        while not stopping.is_set():
            try:
                loop.run_forever()
            except (KeyboardInterrupt, SystemExit):
                continue  # raised in a task that a reward function made; whoever awaits that task reports it

    thread = threading.Thread(target=serve, name="groupwise-rewards", daemon=True)
    thread.start()

    def stop() -> None:
        stopping.set()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=1)
        if not loop.is_running():
            loop.close()

    atexit.register(stop)
    return loop


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_loop.cache_clear)  # a forked child has the loop but not its thread
