"""The process in which expressions are compared: it may be killed at any moment, and then there is another.

    python -m groupwise.rewards.mathematics.worker

It reads one request a line and answers each with one line, both JSON. The first process imports what is needed and
then only forks: the child serves, under a limit on memory and, per request, on processor time, which the kernel
enforces with a signal that nothing here catches. When the child dies, the parent answers for it and forks the next.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import struct
import sys
from typing import Any

from groupwise.rewards.mathematics import judging, second_opinion
from groupwise.rewards.mathematics.equality import Numeric
from groupwise.rewards.mathematics.evaluation import UnknownValueError
from groupwise.rewards.mathematics.nodes import UnreadableError
from groupwise.rewards.mathematics.unstated import Found

MEMORY_BYTES = 1 << 30
"""Memory that a child may take beyond what it starts with."""


def decide(gold: str, answer: str | None, boxes: tuple[str, ...]) -> str:
    """`same`, `different`, or `unreadable` when the gold is no answer to compare with.

    Args:
        gold: the text of the data.
        answer: what was found in the completion; None to ask about the gold alone.
        boxes: see `unstated.Found`.
    """
    right = judging.read_gold(gold)
    if right.fault is not None:
        try:
            if answer is None:
                second_opinion.parse(right.text)
                return "same"
            return "same" if second_opinion.same(right.text, answer) else "different"
        except UnreadableError:
            return "unreadable"
    if answer is None:
        return "same"
    try:
        return "same" if judging.compare(right, Found(answer, "box", boxes), Numeric()) else "different"
    except UnknownValueError:
        return "different"  # it has no value at any point, so it is not seen to be the gold


def _limit_memory() -> None:
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY_BYTES, now + MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):
        return  # where addresses cannot be limited, the sizes of answers and the time still are


def _serve(asked: mmap.mmap | None) -> int:
    """Answer requests until there are no more (0) or memory ran out (1)."""
    for line in iter(sys.stdin.buffer.readline, b""):
        request = json.loads(line)
        code = _answer(request, asked)
        if code:
            return code
    return 0


def _answer(request: dict[str, Any], asked: mmap.mmap | None) -> int:
    if "warm" in request:
        import math_verify  # noqa: F401  (its import counts against nobody's time)
    if asked is not None:
        asked[:8] = struct.pack("q", request["id"])
    timed = hasattr(signal, "setitimer")
    if timed:
        signal.setitimer(signal.ITIMER_PROF, request["seconds"])
    try:
        verdict = decide(request["gold"], request["answer"], tuple(request["boxes"]))
    except (MemoryError, RecursionError):
        verdict = "memory"
    except Exception as error:  # a fault of ours; the run goes on and says so
        verdict = f"fault: {type(error).__name__}: {error}"[:200]
    if timed:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if asked is not None:
        asked[:8] = struct.pack("q", 0)
    _say({"id": request["id"], "verdict": verdict})
    return 1 if verdict == "memory" else 0


def _say(reply: dict[str, Any]) -> None:
    os.write(1, json.dumps(reply).encode() + b"\n")  # one write of less than a pipe's buffer is never torn


def main() -> None:
    """Serve until the other side closes the pipe."""
    import mpmath  # noqa: F401  (imported once, before the forks)

    for name in ("SIGINT", "SIGPROF", "SIGTERM"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN if name == "SIGINT" else signal.SIG_DFL)
    _say({"id": 0, "verdict": "ready"})
    if not hasattr(os, "fork"):
        _serve(None)
        return
    asked = mmap.mmap(-1, 8)
    child = 0

    def end(*_: object) -> None:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    while True:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                _limit_memory()
                code = _serve(asked)
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            return
        (request,) = struct.unpack("q", asked[:8])
        asked[:8] = struct.pack("q", 0)
        if request:
            killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF
            _say({"id": request, "verdict": "time" if killed else "died"})


if __name__ == "__main__":
    main()
