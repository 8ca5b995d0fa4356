"""Whether sources are Python, found out in a process of its own, since hostile text can end the one that parses it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from groupwise.errors import SandboxError
from groupwise.rewards.sandbox.inside import wire
from groupwise.rewards.sandbox.interpreter import find_interpreter
from groupwise.rewards.sandbox.isolation import inside_for

_LONGEST = 1_000_000
"""Characters of the longest source that is looked at."""


def are_programs(sources: Sequence[str], *, python: str | None = None) -> list[bool]:
    """For each source, whether Python compiles it and it does something. Nothing of it is run, so no sandbox is needed.

    A source that ends the parser, or takes it more than ten seconds together with those before it, is none.

    Args:
        sources: Python or not, [N].
        python: the interpreter whose version decides; None for the one that runs this.
    """
    answers: list[bool] = []
    while len(answers) < len(sources):
        before = len(answers)
        answers += _as_far_as_it_goes(sources[before:], python)
        if len(answers) < len(sources):
            answers.append(False)  # it ended the process
    return answers


def _as_far_as_it_goes(sources: Sequence[str], python: str | None) -> list[bool]:
    interpreter = find_interpreter(python)
    place = str(inside_for(interpreter).parent)
    (to_read, to_write), (from_read, from_write) = os.pipe(), os.pipe()
    boot = f"import sys; sys.path.insert(0, {place!r}); from inside.syntax import main; main()"
    try:
        process = subprocess.Popen(
            [*interpreter.command, "-c", boot, str(to_read), str(from_write)],
            pass_fds=(to_read, from_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
        )
    finally:
        os.close(to_read)
        os.close(from_write)
    answers: list[bool] = []
    try:
        for source in sources:
            if len(source) > _LONGEST:
                answers.append(False)
                continue
            wire.send(to_write, source)
            answers.append(wire.receive(from_read, 1) == "1")
    except (wire.ClosedError, wire.BrokenError):
        if not answers and not _starts(interpreter.command):
            raise SandboxError(
                f"{interpreter.command[0]} does not start, so nothing can be compiled"
            ) from None
    finally:
        os.close(to_write)
        os.close(from_read)
        process.kill()
        process.wait()
    return answers


def _starts(command: Sequence[str]) -> bool:
    return (
        subprocess.run([*command, "-c", "pass"], check=False, env={}, stdin=subprocess.DEVNULL).returncode
        == 0
    )
