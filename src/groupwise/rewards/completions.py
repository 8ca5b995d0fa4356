"""The text of completions, whichever of the two shapes a reward gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def text_of(completion: Any) -> str:
    """The text of one completion: itself, or the content of its messages, one after another.

    Raises:
        TypeError: it is neither text nor a list of messages with text for content.
    """
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Sequence) and all(
        isinstance(message, Mapping) and isinstance(message.get("content"), str) for message in completion
    ):
        return "".join(message["content"] for message in completion)
    raise TypeError(
        f"a completion is text or a list of messages with text for content, not {completion!r:.80}"
    )
