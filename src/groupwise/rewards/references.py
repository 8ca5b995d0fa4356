"""What completions are compared with: the reference column."""

from __future__ import annotations

from typing import Any

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
"""Letters of scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana, Han."""


def texts_in(value: Any, column: str = "reference") -> list[str]:
    """The references of one row: one text, or each of a list; none for None, and blank ones are left out.

    Raises:
        TypeError: anything else.
    """
    if value is None:
        return []
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"the {column} column holds {value!r:.60}, not text or a list of texts")
    return [text for text in texts if text.strip()]
