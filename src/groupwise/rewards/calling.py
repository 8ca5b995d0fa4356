"""Calls reward functions, plain and async, and brings back what each returned or raised."""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one call gave: a value, or the exception that it raised."""

    value: Any = None
    """What was returned (awaited, where it was awaitable); None when it raised."""
    error: Exception | None = None
    """What was raised; None when it returned."""


def call_all(calls: Sequence[Callable[[], Any]]) -> list[Outcome]:
    """Make every call; plain functions in order in this thread, then all async ones together.

    Async functions run on one event loop that lives in a thread of its own as long as the process, so they work
    whether or not a loop runs here, and clients and locks that they keep between calls stay bound to a live loop.

    Args:
        calls: functions without arguments; what they return may be awaitable.

    Returns:
        One outcome per call, in order.

    Raises:
        BaseException: what is no `Exception` (Ctrl-C, `SystemExit`, cancellation) is passed on, not collected.
    """
    outcomes: dict[int, Outcome] = {}
    waiting: dict[int, Awaitable[Any]] = {}
    try:
        for i, call in enumerate(calls):
            try:
                value = call()
            except Exception as error:
                outcomes[i] = Outcome(error=error)
                continue
            if inspect.isawaitable(value):
                waiting[i] = value
            else:
                outcomes[i] = Outcome(value=value)
        if waiting:
            outcomes.update(zip(waiting, _await_all(list(waiting.values())), strict=True))
    finally:
        for awaitable in waiting.values():
            if (
                inspect.iscoroutine(awaitable)
                and inspect.getcoroutinestate(awaitable) == inspect.CORO_CREATED
            ):
                awaitable.close()  # never started, since something else was interrupted
    return [outcomes[i] for i in range(len(calls))]


def _await_all(awaitables: Sequence[Awaitable[Any]]) -> list[Outcome]:
    async def settle(awaitable: Awaitable[Any]) -> Outcome | BaseException:
        # Everything is brought back as a value: Ctrl-C raised inside a task would end the loop and leave us waiting.
        try:
            return Outcome(value=await awaitable)
        except Exception as error:
            return Outcome(error=error)
        except BaseException as error:
            return error

    async def together() -> list[Outcome | BaseException]:
        return await asyncio.gather(*(settle(a) for a in awaitables))

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
