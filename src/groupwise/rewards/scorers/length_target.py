"""How near a completion comes to a length asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from annotated_types import Ge

from groupwise.rewards.completions import text_of
from groupwise.rewards.lengths import Unit, lengths_of

FORMULA = "max(0, 1 - |length - {target}| / {width}), length in {unit}"


def length_target(
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]] | None = None,
    target_length: Sequence[int | None] | None = None,
    *,
    target: Annotated[int, Ge(1)] = 128,
    width: Annotated[int, Ge(1)] = 64,
    unit: Unit = "tokens",
) -> list[float]:
    """max(0, 1 - |length - target| / width): 1 at the target, falling on both sides to 0 at `width` from it.

    The distance from a length asked for in the prompt is the reward of L1 (Aggarwal & Welleck 2025, arXiv 2503.04697,
    LCPO-Exact), there without bound; here it ends at 0, so that a very long completion does not outweigh every other
    reward.

    Edge case: a blank completion scores 0, however short the target.

    Args:
        completions: text or messages, [N].
        completion_ids: token ids, [N] lists; needed for `tokens`.
        target_length: per rollout a target of its own, or None for the setting, [N].
        target: the length that scores 1, in `unit`.
        width: how far from the target the score reaches 0, in `unit`.
        unit: what is counted, see `length`.

    Raises:
        ValueError: tokens are asked for, but only text is known; or a row's target is below 1.
        TypeError: a row's target is not a whole number.
    """
    counted = lengths_of(completions, completion_ids, unit)
    wanted = [target] * len(counted)
    if target_length is not None:
        wanted = [target if own is None else _whole(own) for own in target_length]
    return [
        max(0.0, 1 - abs(n - goal) / width) if text_of(completion).strip() else 0.0
        for completion, n, goal in zip(completions, counted, wanted, strict=True)
    ]


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise TypeError(f"the target_length column holds {value!r:.60}, not a whole number")
    if value < 1:
        raise ValueError(f"the target_length column holds {value!r:.60}; a target is at least 1")
    return int(value)
