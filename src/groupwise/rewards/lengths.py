"""How long completions are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from groupwise.rewards.completions import text_of

Unit = Literal["tokens", "words", "characters"]


def lengths_of(
    completions: Sequence[Any], completion_ids: Sequence[Sequence[int]] | None, unit: Unit
) -> list[int]:
    """The length of each completion, [N].

    Args:
        completions: text or messages, [N].
        completion_ids: token ids, [N] lists; needed for `tokens`, where the stop token counts.
        unit: tokens as sampled, words between white space, or characters of the decoded text.

    Raises:
        ValueError: tokens are asked for, but only text is known.
    """
    if unit == "tokens":
        if completion_ids is None:
            if completions:
                raise ValueError(
                    "unit is tokens, but only the text of these completions is known; set unit to words or characters, "
                    "or add the column completion_ids"
                )
            return []
        return [len(ids) for ids in completion_ids]
    texts = [text_of(completion) for completion in completions]
    return [len(text.split() if unit == "words" else text) for text in texts]
