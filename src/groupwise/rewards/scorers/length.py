"""A penalty on length over a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from annotated_types import Ge

from groupwise.rewards.completions import text_of


def length(
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]] | None = None,
    *,
    target: Annotated[int, Ge(0)] = 256,
    alpha: Annotated[float, Ge(0)] = 0.001,
    unit: Literal["tokens", "characters"] = "tokens",
) -> list[float]:
    """-alpha * max(0, length - target): 0 up to the target, then falling on a straight line without bound.

    Edge case: tokens are those sampled, the stop token included; characters are those of the decoded text.

    Args:
        completions: text or messages, [N].
        completion_ids: token ids, [N] lists; needed for `tokens`.
        target: longest length without penalty, in `unit`.
        alpha: penalty for each further token or character.
        unit: what is counted.

    Raises:
        ValueError: tokens are asked for, but only text is known.
    """
    if unit == "tokens":
        if completion_ids is None:
            if completions:
                raise ValueError(
                    "unit is tokens, but only the text of these completions is known; set unit to characters, or add "
                    "the column completion_ids"
                )
            completion_ids = []
        lengths = [len(ids) for ids in completion_ids]
    else:
        lengths = [len(text_of(completion)) for completion in completions]
    # Written so that there is no -0.0, which would compare unequal in records.
    return [-alpha * (n - target) if n > target else 0.0 for n in lengths]
