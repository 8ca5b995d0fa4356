"""Starts the same command several times on this machine, watches over the processes, and ends them together.

What `torchrun --standalone` does, with one sentence in place of a page when a process fails. No torch here.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

SECONDS_TO_NOTICE = 5.0
"""When a process has failed the others mostly find out by themselves; afterwards they are asked to end."""
_LOOK_SECONDS = 0.05


def launch(words: Sequence[str], count: int, *, grace_seconds: float) -> int:
    """Run `python -m groupwise` with these words in `count` processes until all have ended.

    When one fails, the others are given `SECONDS_TO_NOTICE`, then SIGTERM, and after another `grace_seconds` they are
    killed. Ctrl-C and SIGTERM are passed on to all. Processes whose launcher is killed end by themselves.

    Args:
        words: behind the command's name.
        count: processes.
        grace_seconds: what a process may need to write a checkpoint after SIGTERM.

    Returns:
        0, or the exit code of the process that failed first.
    """
    processes: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
        for rank in range(count):
            processes.append(_start(words, rank, count, address))
        return _watch(processes, grace_seconds)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        for number, old in before.items():
            signal.signal(number, old)


def _start(words: Sequence[str], rank: int, count: int, address: dict[str, str]) -> subprocess.Popen[bytes]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    own = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
    }
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(max(1, cores // count))}
    # In a session of its own, so that Ctrl-C reaches it once, through the launcher.
    return subprocess.Popen(
        [sys.executable, "-m", "groupwise", *words],
        env={**os.environ, **address, **own, **threads},
        start_new_session=True,
    )


def _watch(processes: Sequence[subprocess.Popen[bytes]], grace_seconds: float) -> int:
    """The exit code of all."""
    failed: int | None = None
    since = 0.0
    asked = False
    while True:
        codes = [process.poll() for process in processes]
        if failed is None:
            failed = next((code for code in codes if code), None)
            since = time.monotonic()
        if all(code is not None for code in codes):
            return _exit_code(failed or 0)
        if failed is not None:
            waited = time.monotonic() - since
            if waited > SECONDS_TO_NOTICE + grace_seconds:
                return _exit_code(failed)
            if waited > SECONDS_TO_NOTICE and not asked:
                asked = True
                for process in processes:
                    if process.poll() is None:
                        process.terminate()
        time.sleep(_LOOK_SECONDS)


def _exit_code(code: int) -> int:
    """As a shell says it of a process that a signal ended, and says why nothing else has been said."""
    if code >= 0:
        return code
    print(f"error: a process was ended by {signal.Signals(-code).name}, and so the others", file=sys.stderr)
    return 128 - code


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
