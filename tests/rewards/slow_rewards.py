"""Rewards that worker processes import: some get stuck, end their process, or start others."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FOREVER = 10**6


def length(completions: list[str]) -> list[float]:
    return [float(len(c)) for c in completions]


def stuck(completions: list[str]) -> list[float]:
    """Sleeps for ever on `stuck`."""
    if "stuck" in completions:
        time.sleep(FOREVER)
    return length(completions)


def spinning(completions: list[str]) -> list[float]:
    """Never gives the processor back on `stuck`."""
    while "stuck" in completions:
        pass
    return length(completions)


async def stuck_later(completions: list[str]) -> list[float]:
    if "stuck" in completions:
        await asyncio.sleep(FOREVER)
    return length(completions)


async def blocking(completions: list[str]) -> list[float]:
    """Async, and yet it does not wait in a way that can be cancelled."""
    if "stuck" in completions:
        time.sleep(FOREVER)
    return length(completions)


def exiting(completions: list[str]) -> list[float]:
    if "exit" in completions:
        os._exit(3)
    if "kill" in completions:
        os.kill(os.getpid(), signal.SIGKILL)
    return length(completions)


def interrupting(completions: list[str]) -> list[float]:
    raise {"ctrl-c": KeyboardInterrupt, "quit": SystemExit}[completions[0]]


def raising(completions: list[str]) -> list[float]:
    if "bad" in completions:
        raise ValueError("it is bad")
    return length(completions)


def with_children(completions: list[str], note: list[str]) -> list[float]:
    """Starts a process that would live for ever, writes its id down, and gets stuck."""
    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({FOREVER})"])
    Path(note[0]).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(FOREVER)
    return []


def who(completions: list[str], log_metric: Any, trainer_state: Any) -> list[float]:
    log_metric("rollouts", len(completions))
    log_metric("step", trainer_state.global_step)
    return [float(os.getpid())] * len(completions)


def lines(completions: list[str]) -> Any:
    return (line for line in completions)


def array(completions: list[str]) -> Any:
    import numpy as np

    return np.array([len(c) for c in completions], dtype=np.float32)
