"""How many keywords a completion covers."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Annotated, Any

from annotated_types import Ge

from groupwise.rewards.completions import text_of

FORMULA = "keywords found / keywords"
FORMULA_MAX_WORDS = "; 0 for more than {max_words} words"


def keywords(
    completions: Sequence[Any],
    keywords: Sequence[Any] | None = None,
    *,
    words: tuple[str, ...] = (),
    max_words: Annotated[int, Ge(1)] | None = None,
) -> list[float | None]:
    """(keywords that occur in the completion) / (keywords), from 0 to 1.

    A keyword occurs where it stands between word borders, so that `cat` is not found in `category`; upper and lower
    case and the width of white space do not count. A row's keywords are those of its column and of `words` together,
    each counted once.

    Edge cases: an empty completion scores 0. A row without keywords gives None. Listing everything earns everything,
    so set `max_words` where a completion might: a longer one scores 0. Languages written without spaces have no word
    borders and need a function of their own.

    Args:
        completions: text or messages, [N].
        keywords: per rollout a list of texts, one text, or None, [N].
        words: keywords of every row.
        max_words: longest completion that scores, in words between white space; None for no limit.

    Raises:
        ValueError: neither the column nor `words` is there, or a keyword is blank.
        TypeError: a row's keywords are neither text nor a list of texts.
    """
    common = [_form(word) for word in words]
    if "" in common:
        raise ValueError("words: a keyword is blank")
    if keywords is None:
        if not words and completions:
            raise ValueError(
                "there are no keywords: give the setting words, or data with a column 'keywords'"
            )
        keywords = [None] * len(completions)
    scores: list[float | None] = []
    for completion, row in zip(completions, keywords, strict=True):
        wanted = dict.fromkeys([*_row(row), *common])
        if not wanted:
            scores.append(None)
            continue
        said = _form(text_of(completion))
        too_long = max_words is not None and len(said.split()) > max_words
        covered = 0 if too_long else sum(_occurs(word, said) for word in wanted)
        scores.append(covered / len(wanted))
    return scores


def needed_columns(*, words: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The columns that these settings cannot do without."""
    return () if words else ("keywords",)


def _row(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
        raise TypeError(f"the keywords column holds {value!r:.60}, not a list of texts")
    words = [_form(word) for word in value]
    if "" in words:
        raise ValueError(f"the keywords column holds a blank keyword, in {value!r:.60}")
    return words


def _form(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def _occurs(word: str, text: str) -> bool:
    # What follows may be part of the word: C is not C++ or C#.
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w|[+#]+(?!\w))", text) is not None
