"""The answer, character for character."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

from groupwise.rewards.completions import text_of

FORMULA = "1 if completion = answer, else 0"


def exact(
    completions: Sequence[Any], answer: Sequence[Any], *, ignore_case: bool = False, last_line: bool = False
) -> list[float | None]:
    """1 when the completion is the answer, 0 when not; white space around either does not count.

    Edge cases: an answer that is empty, blank or None gives None, so an empty completion is never paid. A whole
    number in the answer column is read as its figures. Accents written in one character or two are the same.

    Args:
        completions: text or messages, [N].
        answer: the right text, [N].
        ignore_case: letters count the same in upper and lower case.
        last_line: only the last line that is not blank is compared, so that reasoning may come before it.

    Raises:
        TypeError: an answer is neither text, a whole number nor None.
    """
    return [
        _one(text_of(completion), gold, ignore_case, last_line)
        for completion, gold in zip(completions, answer, strict=True)
    ]


def _one(completion: str, gold: Any, ignore_case: bool, last_line: bool) -> float | None:
    if isinstance(gold, int) and not isinstance(gold, bool):
        gold = str(gold)
    if gold is None or (isinstance(gold, str) and not gold.strip()):
        return None
    if not isinstance(gold, str):
        raise TypeError(f"the answer column holds {gold!r:.60}, not text")
    said = completion.strip()
    if last_line:
        said = said.rpartition("\n")[2]
    return float(_form(said, ignore_case) == _form(gold, ignore_case))


def _form(text: str, ignore_case: bool) -> str:
    text = unicodedata.normalize("NFC", text.strip())
    return text.casefold() if ignore_case else text
