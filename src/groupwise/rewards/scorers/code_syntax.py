"""Whether a completion holds a program at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from groupwise.rewards.completions import text_of
from groupwise.rewards.sandbox.extract import extract_code
from groupwise.rewards.sandbox.syntax import are_programs


def code_syntax(completions: Sequence[Any], *, python: str | None = None) -> list[float]:
    """1 when the program in the completion compiles, 0 when not. Nothing of it is run.

    The program is found as `code_tests` finds it. It has to do something: a text of names and literals alone, such as
    `Yes` or `42`, compiles too and scores 0. So does an empty completion.

    Edge cases: warnings do not count. Text that ends the parser, or takes it longer than ten seconds, scores 0; it is
    compiled in a process of its own. It says nothing of whether the program works: any program scores 1, so give it a
    small weight beside `code_tests`.

    Args:
        completions: text or messages, [N].
        python: interpreter whose version decides; None for this one.

    Raises:
        SandboxError: there is no such interpreter.
    """
    sources = [extract_code(text_of(completion)) for completion in completions]
    return [float(answer) for answer in are_programs(sources, python=python)]
