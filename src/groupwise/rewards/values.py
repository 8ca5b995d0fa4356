"""What a reward function may return: a list with one number, or values along the response, or None per rollout."""

from __future__ import annotations

import inspect
import math
from typing import Any

from groupwise.errors import RewardError, raised
from groupwise.rewards.dense import Dense, as_dense


class Unusable:
    """A value that is no reward, with the reason as a clause."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


def as_list(returned: Any, count: int, *, who: str) -> list[Any]:
    """The returned values as a list of `count` items.

    Lists, tuples, and arrays, tensors and series (whatever has `tolist`) are taken.

    Raises:
        RewardError: anything else, or another count; it cannot be said whose rollouts these values are.
    """
    values = returned
    if not isinstance(values, list | tuple) and callable(getattr(values, "tolist", None)):
        values = values.tolist()
    if not isinstance(values, list | tuple):
        kind = "nothing" if returned is None else f"a {type(returned).__name__}"
        raise RewardError(
            f"{who} returned {kind} for {count} rollouts; a reward returns a list with one number or None for each"
        )
    if len(values) != count:
        raise RewardError(
            f"{who} returned {len(values)} values for {count} rollouts; a reward returns one number or None for each"
        )
    return list(values)


def as_value(
    value: Any, *, tokens: int | None = None, characters: int = 0
) -> float | Dense | Unusable | None:
    """One returned value as a finite float, or values along the response, or None, or why it is none of these.

    Zero is a value, as are True and False (1 and 0), and numpy's and torch's scalars. A function that finds a rollout
    it cannot judge may give the exception in place of a number, and keep the values of the others.

    Args:
        value: what was returned for one rollout.
        tokens: how many its response has; None where that is not known.
        characters: how many its text has.
    """
    if value is None:
        return None
    if isinstance(value, Exception):
        return Unusable(raised(value))
    if inspect.iscoroutine(value):
        value.close()
        return Unusable("it gave a coroutine where a number belongs; await it in the function")
    if isinstance(value, str | bytes):
        return Unusable(f"it gave the text {value!r:.40}, not a number")
    if getattr(value, "ndim", None) and callable(getattr(value, "tolist", None)):
        value = value.tolist()
    if isinstance(value, list | tuple):
        dense = as_dense(value, tokens=tokens, characters=characters)
        return Unusable(dense) if isinstance(dense, str) else dense
    if isinstance(value, dict | set):
        return Unusable(f"it gave a {type(value).__name__} where one number belongs")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        return Unusable(f"it gave a {type(value).__name__} that is no number ({raised(error)})")
    if not math.isfinite(number):
        return Unusable(f"it gave {number}; None is for a rollout that the reward does not apply to")
    return number
