"""From each reward's own value to one verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.errors import RewardError
from groupwise.records import Verdict
from groupwise.records.nouns import NONE_APPLIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one reward says of one rollout."""

    value: float | None = None
    """Its value, finite; None when it does not apply or failed."""
    failure: str | None = None
    """Why it failed; None when it did not."""
    stand_in: float | None = None
    """What enters the sum in place of a value that failed; None to leave the rollout out."""


def combine(labels: Sequence[str], weights: Sequence[float], parts: Sequence[Part]) -> Verdict:
    """reward = sum over the parts that apply of weight x value.

    Edge cases: a part that does not apply is skipped, so the weights of the others are not scaled up. A part of
    weight 0 is recorded for watching and cannot give a rollout a reward by itself. With no part that applies the
    reward is None. A part that failed without a stand-in makes the reward None whatever the others say. A stand-in
    enters the sum but not `Verdict.parts`, which hold only what the rewards said.

    Args:
        labels: one per reward, unique.
        weights: one per reward.
        parts: one per reward, all of the same rollout.

    Raises:
        RewardError: the sum is too large for a float.
    """
    failures = "; ".join(part.failure for part in parts if part.failure is not None)
    values = {label: part.value for label, part in zip(labels, parts, strict=True)}
    if any(part.failure is not None and part.stand_in is None for part in parts):
        return Verdict(reward=None, parts=values, failure=failures)
    terms = []
    for weight, part in zip(weights, parts, strict=True):
        value = part.value if part.failure is None else part.stand_in
        if weight != 0 and value is not None:
            terms.append(weight * value)
    if not terms:
        return Verdict(reward=None, parts=values, failure="; ".join(filter(None, [failures, NONE_APPLIES])))
    # Added in the order of the rewards, so that the sum is the same on every machine.
    total = sum(terms)
    if not math.isfinite(total):
        raise RewardError(
            f"the weighted sum of the rewards is {total}, from {values}; lower the weights or the values"
        )
    return Verdict(reward=total, parts=values, failure=failures or None)
