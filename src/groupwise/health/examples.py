"""The rollouts of a step that show what a check has found, for people to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from groupwise.records import Group, Rollout, StopReason, TrainingGroup, Verdict
from groupwise.records.health_file import Example

_SHOWN = 2
_Score = Callable[[Rollout, Verdict, TrainingGroup], float | None]


def examples_of(check: str, groups: Sequence[TrainingGroup]) -> tuple[Example, ...]:
    """At most two rollouts of a batch that show a finding of a check; none where no rollout does.

    Args:
        check: its name; for one of the user's own, the rollouts of highest and lowest reward.
        groups: the batch.
    """
    if check not in _BY_CHECK:
        return (*_most("highest reward", _reward, groups)[:1], *_most("lowest reward", _less, groups)[:1])
    chosen = _BY_CHECK[check]
    return () if chosen is None else _most(*chosen, groups)[:_SHOWN]


def _most(why: str, score: _Score, groups: Sequence[TrainingGroup]) -> tuple[Example, ...]:
    """Those that have a score, the highest first; of equals the earlier."""
    found = [
        (value, entry.group, i)
        for entry in groups
        for i, (rollout, verdict) in enumerate(_pairs(entry.group))
        if (value := score(rollout, verdict, entry)) is not None
    ]
    return tuple(
        Example(prompt_id=group.prompt.id, group_index=group.rollouts_G[i].group_index, why=why)
        for _, group, i in sorted(found, key=lambda each: -each[0])[:_SHOWN]
    )


def _pairs(group: Group) -> list[tuple[Rollout, Verdict]]:
    return list(zip(group.rollouts_G, group.verdicts_G, strict=True))


def _reward(rollout: Rollout, verdict: Verdict, entry: TrainingGroup) -> float | None:
    return verdict.reward


def _less(rollout: Rollout, verdict: Verdict, entry: TrainingGroup) -> float | None:
    return None if verdict.reward is None else -verdict.reward


def _length(rollout: Rollout, verdict: Verdict, entry: TrainingGroup) -> float:
    return float(len(rollout.token_ids_T))


def _cut(rollout: Rollout, verdict: Verdict, entry: TrainingGroup) -> float | None:
    return 1.0 if rollout.stop_reason is StopReason.LENGTH else None


def _failed(rollout: Rollout, verdict: Verdict, entry: TrainingGroup) -> float | None:
    return None if verdict.failure is None else 1.0


def _dead(rollout: Rollout, verdict: Verdict, entry: TrainingGroup) -> float | None:
    return 1.0 if entry.zero_spread else None


def _repeats(rollout: Rollout, verdict: Verdict, entry: TrainingGroup) -> float:
    ids = rollout.token_ids_T.tolist()
    runs = list(zip(*(ids[k:] for k in range(4)), strict=False))
    return len(runs) - len(set(runs))


def _advantage(rollout: Rollout, verdict: Verdict, entry: TrainingGroup) -> float:
    found_T = entry.advantages_GT[entry.group.rollouts_G.index(rollout)]
    return float(np.abs(found_T).max(initial=0.0))


def _certain(rollout: Rollout, verdict: Verdict, entry: TrainingGroup) -> float | None:
    return None if rollout.entropy_T is None else -float(rollout.entropy_T.mean())


def _gap(rollout: Rollout, verdict: Verdict, entry: TrainingGroup) -> float | None:
    old_T = entry.old_logprobs_GT[entry.group.rollouts_G.index(rollout)]
    value = float(np.abs(old_T - rollout.sampler_logprobs_T).max(initial=0.0))
    return value if np.isfinite(value) else None


def _far(rollout: Rollout, verdict: Verdict, entry: TrainingGroup) -> float | None:
    if entry.reference_logprobs_GT is None:
        return None
    i = entry.group.rollouts_G.index(rollout)
    value = float((entry.old_logprobs_GT[i] - entry.reference_logprobs_GT[i]).mean())
    return value if np.isfinite(value) else None


_BY_CHECK: dict[str, tuple[str, _Score] | None] = {
    "dead_groups": ("of a group with equal rewards", _dead),
    "entropy_collapse": ("lowest entropy", _certain),
    "gradient_spike": ("largest advantage", _advantage),
    "kl_runaway": ("farthest from the reference", _far),
    "kl_stuck": None,
    "learning_rate_range": None,
    "length_inflation": ("longest", _length),
    "memory_growth": ("longest", _length),
    "no_learning": ("highest reward", _reward),
    "non_finite": None,  # the skipped update has a line with its tokens
    "ratio_extremes": ("largest advantage", _advantage),
    "reference_drift": None,
    "repetition": ("most repeated", _repeats),
    "reward_failures": ("a reward failed", _failed),
    "reward_hacking": ("highest reward", _reward),
    "sampler_mismatch": ("largest gap of old policy and sampler", _gap),
    "stale_rollouts": None,
    "truncation": ("cut off", _cut),
}
"""By the name of a check what a rollout is an example of, and how good a one it is; None where none says anything."""
