"""A penalty on length over a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from annotated_types import Ge

from groupwise.rewards.lengths import Unit, lengths_of

FORMULA = "-{alpha:g} * max(0, length - {target}), length in {unit}"


def length(
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]] | None = None,
    *,
    target: Annotated[int, Ge(0)] = 256,
    alpha: Annotated[float, Ge(0)] = 0.001,
    unit: Unit = "tokens",
) -> list[float]:
    """-alpha * max(0, length - target): 0 up to the target, then falling on a straight line without bound.

    A penalty: it says nothing for a completion, so it goes with a reward that does.

    Edge case: tokens are those sampled, the stop token included; words stand between white space; characters are those
    of the decoded text.

    Args:
        completions: text or messages, [N].
        completion_ids: token ids, [N] lists; needed for `tokens`.
        target: longest length without penalty, in `unit`.
        alpha: penalty for each further token, word or character.
        unit: what is counted.

    Raises:
        ValueError: tokens are asked for, but only text is known.
    """
    # Written so that there is no -0.0, which would compare unequal in records.
    return [
        -alpha * (n - target) if n > target else 0.0 for n in lengths_of(completions, completion_ids, unit)
    ]
