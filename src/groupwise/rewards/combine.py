"""From each reward's own values to one verdict per rollout: gates, normalisation, weights, schedules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from groupwise.config.rewards import GateConfig
from groupwise.errors import RewardError
from groupwise.records import Verdict
from groupwise.records.nouns import NONE_APPLIES
from groupwise.rewards.dense import Dense
from groupwise.rewards.normalise import Statistics
from groupwise.rewards.term import Term

_ROUNDING = 1e-7
"""Of the sum of the sizes of the terms: what is left of it where they cancel, for values rounded to float32 (6e-8)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one reward says of one rollout."""

    value: float | None = None
    """Its value, finite; None when it does not apply or failed. Of one along the response, the sum."""
    dense: Dense | None = None
    """The values along the response; None for one number."""
    failure: str | None = None
    """Why it failed; None when it did not."""
    stand_in: float | None = None
    """What enters the sum in place of a value that failed; None to leave the rollout out."""

    @property
    def counted(self) -> float | None:
        """The value, or what stands in for it."""
        return self.value if self.failure is None else self.stand_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """What the rewards of a batch come to. Lists are of length N."""

    verdicts: list[Verdict]
    """One per rollout."""
    raw: list[float | None]
    """The weighted sums before normalisation; equal to the rewards where nothing is normalised."""
    gates_closed: dict[str, list[float]] = field(default_factory=dict)
    """Label of each gated reward to 1 or 0 per rollout that it applies to: was its gate closed?"""


def combine(
    terms: Sequence[Term],
    parts: Sequence[Sequence[Part]],
    groups: Sequence[str],
    *,
    step: int = 0,
    statistics: Statistics | None = None,
) -> Combined:
    """reward_i = sum over k of weight_k(step) x normalised_k(gated_k(value_ik)), over the parts that apply.

    - value: the reward's own, or its stand-in where it failed.
    - gate: where the deciding reward's own value is below `at_least`, the value is `otherwise` instead. Where the
      deciding reward does not apply, there is nothing to decide and the value stays.
    - normalised: see `Statistics`; over the rollouts that are not left out. Normalising each reward before they are
      summed keeps apart rollouts that differ in their parts but not in the sum (GDPO, Liu et al. 2026, arXiv
      2601.05242, without its last step, a second normalisation over the batch).

    Edge cases: a part that does not apply is skipped, so the weights of the others are not scaled up. A part of
    weight 0 is recorded for watching: it can neither give a rollout a reward nor take one away by failing. With no
    part that applies the reward is None. A part that failed without a stand-in makes the reward None whatever the
    others say, also when it only decides a gate. A stand-in enters the sum but not `Verdict.parts`, which hold only
    what the rewards said.

    Args:
        terms: one per reward, with unique labels.
        parts: per reward, one per rollout, [K][N].
        groups: which group each rollout is of, [N].
        step: steps finished so far.
        statistics: what normalises, and remembers for the next step; None to normalise nothing, as in evaluation.

    Raises:
        RewardError: a sum is too large for a float.
    """
    count = len(groups)
    weights = [term.weight_at(step) for term in terms]
    deciding = {term.gate.reward for term in terms if term.gate is not None}
    matters = [weight != 0 or term.label in deciding for term, weight in zip(terms, weights, strict=True)]
    out = [
        any(
            p[i].failure is not None and p[i].stand_in is None and m
            for p, m in zip(parts, matters, strict=True)
        )
        for i in range(count)
    ]
    counted = {t.label: [part.counted for part in p] for t, p in zip(terms, parts, strict=True)}
    gates_closed: dict[str, list[float]] = {}
    raw_terms: list[dict[str, float]] = [{} for _ in range(count)]
    final_terms: list[dict[str, float]] = [{} for _ in range(count)]
    for term, weight in zip(terms, weights, strict=True):
        values = [
            None if left_out else value for value, left_out in zip(counted[term.label], out, strict=True)
        ]
        if term.gate is not None:
            closed = [_closed(term.gate, decides) for decides in counted[term.gate.reward]]
            gates_closed[term.label] = [
                float(shut) for value, shut in zip(values, closed, strict=True) if value is not None
            ]
            values = [
                term.gate.otherwise if shut and value is not None else value
                for value, shut in zip(values, closed, strict=True)
            ]
        if weight == 0:
            continue
        final = values if statistics is None else statistics.normalised(term, values, groups)
        for i in range(count):
            value, normalised = values[i], final[i]
            if value is not None and normalised is not None:
                raw_terms[i][term.label] = weight * value
                final_terms[i][term.label] = weight * normalised
    return Combined(
        verdicts=[_verdict(terms, [p[i] for p in parts], final_terms[i], out[i]) for i in range(count)],
        raw=[_total(each) if each else None for each in raw_terms],
        gates_closed=gates_closed,
    )


def _closed(gate: GateConfig, value: float | None) -> bool:
    return value is not None and value < gate.at_least


def _total(terms: dict[str, float]) -> float:
    """Added in the order of the rewards, so that the sum is the same on every machine.

    Terms that cancel but for their rounding come to exactly 0: 0.1 + 0.2 - 0.3 is 6e-17, which is beyond every relative
    tolerance of 0 - 0 beside it, and estimators that go by the order alone would take it for a better answer.
    """
    total = size = 0.0
    for term in terms.values():
        total += term
        size += abs(term)
    return 0.0 if abs(total) <= _ROUNDING * size < math.inf else total


def _verdict(terms: Sequence[Term], parts: Sequence[Part], entered: dict[str, float], out: bool) -> Verdict:
    values = {term.label: part.value for term, part in zip(terms, parts, strict=True)}
    failures = "; ".join(part.failure for part in parts if part.failure is not None)
    if out or not entered:
        reasons = failures if out else "; ".join(filter(None, [failures, NONE_APPLIES]))
        return Verdict(reward=None, parts=values, failure=reasons)
    total = _total(entered)
    if not math.isfinite(total):
        raise RewardError(
            f"the weighted sum of the rewards is {total}, from {values}; lower the weights or the values"
        )
    return Verdict(reward=total, parts=values, failure=failures or None, terms=entered)
