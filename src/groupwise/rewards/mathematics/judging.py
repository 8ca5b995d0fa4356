r"""One answer against one gold: found, read and compared, or why not."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.rewards.mathematics.equality import UndecidedError, Values, same_answer
from groupwise.rewards.mathematics.evaluation import UnknownValueError
from groupwise.rewards.mathematics.finding import find_answer, gold_answer
from groupwise.rewards.mathematics.nodes import UnreadableError
from groupwise.rewards.mathematics.reading import readings
from groupwise.rewards.mathematics.shapes import Many, Shape, Words
from groupwise.rewards.mathematics.unstated import Found

MAX_GOLD = 20_000
"""Longest answer of the data that is read; a whole worked solution may stand there."""


@dataclass(frozen=True, slots=True)
class Gold:
    """The answer of the data, or why it cannot be read."""

    text: str
    """What was taken from the column; empty where nothing could be."""
    shapes: tuple[Shape, ...]
    """Its readings; empty where there are none."""
    fault: str | None
    """Why it cannot be read here, as a clause; None when it can."""

    @property
    def kind(self) -> str:
        """What is looked for in a completion: `value`, `choice`, `words`, or `formula` for what is not known here."""
        if self.fault is not None:
            return "formula"
        if not self.shapes or not isinstance(self.shapes[0], Words):
            return "words" if self.shapes and self.shapes[0] == Many((), braces=True) else "value"
        return "choice" if len(self.shapes[0].text) == 1 else "words"


@functools.lru_cache(maxsize=4096)
def read_gold(text: str) -> Gold:
    """The answer of the data, read once however often it is compared."""
    if len(text) > MAX_GOLD:
        return Gold("", (), f"it has more than {MAX_GOLD} characters")
    taken = ""
    try:
        taken = gold_answer(text)
        return Gold(taken, tuple(readings(taken, gold=True)), None)
    except (UnreadableError, RecursionError) as error:
        return Gold(taken, (), str(error) or "it is nested too deeply")


def find(completion: str, gold: Gold, prompt: str | None) -> Found:
    """The answer of a completion to a question with this gold. Raises UnreadableError where there is none."""
    return find_answer(completion, kind=gold.kind, prompt=prompt)


def compare(gold: Gold, found: Found, values: Values) -> bool:
    """Whether the answer found is the gold.

    Raises:
        UndecidedError, UnknownValueError: `values` cannot decide.
    """
    doubt: Exception | None = None
    for shapes in _answers(gold, found):
        try:
            if same_answer(gold.shapes, shapes, values):
                return True
        except (UndecidedError, UnknownValueError) as error:
            doubt = error
    if doubt is not None:
        raise doubt
    return False


def _answers(gold: Gold, found: Found) -> list[Sequence[Shape]]:
    """The readings of the answer, and of all boxes together where the gold has several values."""
    answers: list[Sequence[Shape]] = []
    with contextlib.suppress(UnreadableError, RecursionError):
        answers.append(readings(found.text, gold=False))
    if found.boxes and any(
        isinstance(shape, Many) and len(shape.items) == len(found.boxes) for shape in gold.shapes
    ):
        with contextlib.suppress(UnreadableError, RecursionError):
            answers.append(readings(" ; ".join(found.boxes), gold=False))
    return answers
