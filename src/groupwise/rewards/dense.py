"""Rewards given along a response: one number per token, or one per span of its characters.

A reward function may return, in place of a rollout's one number,

- a sequence with one number (or None) per token of `completion_ids`, or
- a sequence of `(start, end, value)`: characters `start` up to `end` of the completion's text earned `value`.

The value of a span is earned with its last character, so it belongs to the token that completes that character: the
last of several that spell a multi-byte one, or the one token whose text reaches beyond the span.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.errors import RewardError
from groupwise.records import Rollout, StopReason, Verdict

Decode = Callable[[Sequence[int]], str]
"""Token ids to text, as the engine writes `Rollout.text`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense:
    """What one reward says along one response."""

    values: tuple[float | None, ...]
    """Per token, None for nothing said; or per span."""
    ends: tuple[int, ...] | None
    """Where each span ends, in characters; None where values are per token."""

    @property
    def total(self) -> float:
        """The sum of the values."""
        return math.fsum(value for value in self.values if value is not None)


def as_dense(given: Sequence[Any], *, tokens: int | None, characters: int) -> Dense | str:
    """A returned sequence as values along the response, or why it is none, as a clause.

    Args:
        given: numbers and None, or triples.
        tokens: how many the response has; None where that is not known.
        characters: how many its text has.
    """
    spans = [item for item in given if isinstance(item, list | tuple)]
    if len(spans) < len(given) or not given:
        wrong = next((x for x in given if x is not None and not _finite(x)), None)
        if wrong is not None:
            return f"it gave {wrong!r:.40} among the values of its tokens, which is no finite number"
        if tokens is not None and len(given) != tokens:
            return f"it gave {len(given)} values for the {tokens} tokens of its completion_ids"
        return Dense(values=tuple(None if x is None else float(x) for x in given), ends=None)
    for span in spans:
        if len(span) != 3 or not _finite(span[2]) or not all(_whole(x) for x in span[:2]):
            return f"it gave the span {span!r:.60}; a span is (start, end, value)"
        if not 0 <= span[0] < span[1] <= characters:
            return f"it gave a span from {span[0]} to {span[1]} of a completion of {characters} characters"
    return Dense(values=tuple(float(s[2]) for s in spans), ends=tuple(int(s[1]) for s in spans))


def token_rewards(
    verdict: Verdict,
    dense: Mapping[str, Dense],
    weights: Mapping[str, float],
    rollout: Rollout,
    decode: Decode | None,
) -> tuple[float | None, ...] | None:
    """The reward of a rollout by token, None where nothing was earned; None altogether where none is dense.

    A reward that gives one number adds it at the last token, and so does a dense one that a gate replaced.

    Args:
        verdict: with the terms of its sum.
        dense: what dense rewards said, by label.
        weights: factor of each of these in the sum, by label.
        rollout: whose.
        decode: how its text came about; None where no tokenizer is at hand.

    Raises:
        RewardError: spans without a tokenizer.
    """
    T = len(rollout.token_ids_T)
    whole = {
        k: dense[k] for k, term in verdict.terms.items() if k in dense and term == weights[k] * dense[k].total
    }
    if not whole or T == 0:
        return None
    earned: list[float | None] = [None] * T

    def add(t: int, value: float) -> None:
        earned[t] = (earned[t] or 0.0) + value

    for label, term in verdict.terms.items():
        if label not in whole:
            add(T - 1, term)
            continue
        said = whole[label]
        places = range(T) if said.ends is None else tokens_at(said.ends, rollout, decode, label)
        for t, value in zip(places, said.values, strict=True):
            if value is not None:
                add(t, weights[label] * value)
    return tuple(earned)


def tokens_at(ends: Sequence[int], rollout: Rollout, decode: Decode | None, label: str) -> list[int]:
    """Which token completes the last character of each span, from 0.

    Found by bisection over how much of the text the first tokens spell, so no piece is decoded out of its context.

    Args:
        ends: where spans end, in characters of `rollout.text`, from 1.
        rollout: whose ids and text.
        decode: ids to text.
        label: the reward's, for the error.

    Raises:
        RewardError: there is no tokenizer.
    """
    if decode is None:
        raise RewardError(
            f"the reward {label!r} gives spans of characters, but there is no tokenizer here to map them to tokens"
        )
    text = rollout.text
    stopped = rollout.stop_reason is StopReason.STOP
    ids = rollout.token_ids_T.tolist()[: -1 if stopped else None]
    known: dict[int, int] = {0: 0, len(ids): len(text)}

    def spelled(count: int) -> int:
        """How many characters of the text the first tokens spell."""
        if count not in known:
            known[count] = _agreement(decode(ids[:count]), text)
        return known[count]

    found = []
    for end in ends:
        low, high = 0, len(ids)  # the first `low` tokens do not reach it, the first `high` do
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if spelled(middle) >= end else (middle, high)
        # What stands for broken bytes is complete only when the next character begins.
        while text[end - 1] == "\ufffd" and high < len(ids) and spelled(high + 1) == end:
            high += 1
        found.append(high - 1)
    return found


def _agreement(start: str, text: str) -> int:
    """Length of the longest beginning that both have."""
    if text.startswith(start):
        return len(start)
    return next(i for i, (a, b) in enumerate(zip(start + "\0", text + "\1", strict=False)) if a != b)


def _finite(value: Any) -> bool:
    real = isinstance(value, numbers.Real) or (getattr(value, "shape", None) == () and hasattr(value, "item"))
    try:
        return real and math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
