"""The form of the completion."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from groupwise.rewards.completions import text_of

FORMULA = "1 if the whole completion matches {pattern}, or is the blocks {tags}, else 0"

# A group that ends in an unbounded repeat and is itself repeated: (a+)+, (?:.*\s?)*, (\w+)\s*){2,}.
_NESTED = re.compile(r"(?<![\\+*?}])(?:[+*]|\{\d*,\})\??(?:\\?.[?*])?\)(?:[+*]|\{\d*,\})(?!\+)")


def format(
    completions: Sequence[Any], *, pattern: str | None = None, tags: tuple[str, ...] | None = None
) -> list[float]:
    r"""1 when the whole completion has the form asked for, 0 when not. The prompt is not looked at.

    With `pattern`, the regular expression has to match from the first character to the last; `.` matches line breaks
    too. With `tags: [think, answer]` the completion has to be `<think>...</think>` and then `<answer>...</answer>`:
    exactly one block of each, in this order, none of them blank, nothing but white space around and between them.

    Edge cases: a second opening or closing tag anywhere scores 0, also inside another block. A pattern that can take
    exponential time (a repeated group that ends in a repeat, as in `(a+)+`) is refused; write the inner repeat
    possessive, `(?:a++)+`. Alternatives that overlap, as in `(a|a)*`, are not detected, and several `.*` in a row
    take time that grows with a power of the length: prefer `tags`, whose time is linear.

    Args:
        completions: text or messages, [N].
        pattern: a regular expression of Python's `re`.
        tags: names of the blocks, in order.

    Raises:
        ValueError: both or neither of the settings, a pattern that is not one or can take exponential time, a tag's
            name that is empty, given twice or not letters, digits, - and _.
    """
    if (pattern is None) == (tags is None):
        raise ValueError("give pattern or tags, one of them")
    texts = [text_of(completion) for completion in completions]
    if tags is not None:
        names = _names(tags)
        return [float(_in_blocks(text, names)) for text in texts]
    assert pattern is not None
    compiled = _compiled(pattern)
    return [float(compiled.fullmatch(text) is not None) for text in texts]


def _names(tags: Sequence[str]) -> list[str]:
    if isinstance(tags, str) or not tags:
        raise ValueError("tags is a list with at least one name, such as [think, answer]")
    for name in tags:
        if re.fullmatch(r"[A-Za-z][\w-]*", name) is None:
            raise ValueError(f"tags: {name!r} is not a tag's name; give it without < and >")
        if list(tags).count(name) > 1:
            raise ValueError(f"tags: {name!r} is given twice")
    return list(tags)


def _compiled(pattern: str) -> re.Pattern[str]:
    nested = _NESTED.search(pattern)
    if nested is not None:
        raise ValueError(
            f"pattern: a repeat inside a repeated group ({pattern[max(0, nested.start() - 8) : nested.end()]!r}) can "
            "take exponential time; add a + after the inner repeat to make it possessive, or use tags"
        )
    try:
        return re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise ValueError(f"pattern {pattern!r} is not a regular expression: {error}") from None


def _in_blocks(text: str, names: Sequence[str]) -> bool:
    rest = text
    for name in names:
        opening, closing = f"<{name}>", f"</{name}>"
        if text.count(opening) != 1 or text.count(closing) != 1:
            return False
        before, found, rest = rest.partition(opening)
        content, closed, rest = rest.partition(closing)
        if before.strip() or not found or not closed or not _visible(content):
            return False
    return not rest.strip()


def _visible(text: str) -> bool:
    """Some character that shows: neither white space nor one of Unicode's format characters, such as U+200B."""
    return any(unicodedata.category(c) not in ("Cc", "Cf", "Zl", "Zp", "Zs") for c in text)
