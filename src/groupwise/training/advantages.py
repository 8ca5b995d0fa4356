"""From the verdicts of a batch to advantages, and which rollouts enter the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from groupwise.config.objective import ObjectiveConfig
from groupwise.errors import TrainingError
from groupwise.objective.credit import process
from groupwise.objective.estimator import Estimator, Evidence
from groupwise.objective.overlong import soft_overlong
from groupwise.objective.spread import zero_spread
from groupwise.records import Group, Rollout, StopReason, Verdict
from groupwise.records.nouns import FloatArray
from groupwise.training.filters import kept

PerToken = tuple[NDArray[np.float64], ...]
Values = Sequence[Sequence[NDArray[Any]]]
"""Per group and rollout one array [T]."""
OVERLONG = "soft_overlong"
"""The label of the penalty on responses close to the limit, among the parts of a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judged:
    """A group, and what its verdicts decide before any advantage. Arrays have shape [G]."""

    group: Group
    """The rollouts and verdicts."""
    counted_G: NDArray[np.bool_]
    """Which rollouts have a reward, so that they count in their group's mean and spread."""
    in_loss_G: NDArray[np.bool_]
    """Which rollouts enter the loss and its divisors."""
    scored_G: NDArray[np.bool_]
    """Which rollouts need log-probs: those in the loss, and with the KL in the reward all that have one."""
    zero_spread: bool
    """The rewards are all equal, or fewer than two are present."""


def judge(group: Group, objective: ObjectiveConfig) -> Judged:
    """Which rollouts of a group count, and which enter the loss.

    A rollout without a reward is left out of the mean, the spread and the loss. A truncated one still counts in the
    group's mean and spread when it is masked from the loss, and so does one that the filter leaves out, unless
    `filter.counted` is false. Where there is a greedy baseline, its reward counts in the
    spread, and without one nothing of the group can be compared, so all of it is left out.

    Args:
        group: scored rollouts.
        objective: what to do with zero spread and truncation.
    """
    rewards = [verdict.reward for verdict in group.verdicts_G]
    counted_G = np.array([reward is not None for reward in rewards], dtype=np.bool_)
    if objective.filter is not None:
        stays_G = kept(group, objective.filter)
        if not objective.filter.counted:
            counted_G &= stays_G
    along = objective.credit == "process" and any(v.token_rewards is not None for v in group.verdicts_G)
    compared = [v for v, counted in zip(group.verdicts_G, counted_G, strict=True) if counted]
    if group.greedy is not None:
        compared += [group.greedy.verdict] if group.greedy.verdict.reward is not None else []
        counted_G &= group.greedy.verdict.reward is not None
    said = [value for verdict in compared for value in _values(verdict, along=along)]
    flat = len(compared) < 2 or zero_spread(np.array(said, dtype=np.float64))
    in_loss_G = counted_G.copy()
    if objective.truncated == "mask":
        in_loss_G &= np.array([r.stop_reason is not StopReason.LENGTH for r in group.rollouts_G])
    if objective.filter is not None:
        in_loss_G &= stays_G
    if objective.zero_spread == "drop" and flat:
        in_loss_G[:] = False
    kl_in_reward = objective.kl.place == "reward" and objective.kl.beta > 0
    return Judged(
        group=group,
        counted_G=counted_G,
        in_loss_G=in_loss_G,
        scored_G=counted_G if kl_in_reward else in_loss_G,
        zero_spread=bool(flat),
    )


def _values(verdict: Verdict, *, along: bool) -> list[float]:
    """All that was earned along a response, or its one reward."""
    if not along or verdict.token_rewards is None:
        return [] if verdict.reward is None else [verdict.reward]
    return [value for value in verdict.token_rewards if value is not None]


def penalised(
    verdicts: Sequence[Verdict],
    rollouts: Sequence[Rollout],
    objective: ObjectiveConfig,
    *,
    limits: Sequence[int],
) -> list[Verdict]:
    """Verdicts with the soft penalty on responses close to the limit, where `truncated` asks for it.

    It is a part and a term of its own, `soft_overlong`, so that the record shows what the reward was without it.

    Args:
        verdicts: one per rollout.
        rollouts: in the same order.
        objective: says whether, and how much.
        limits: the most tokens that each may have: `rollout.max_new_tokens`, or the prompt's own limit.
    """
    if objective.truncated != "penalise":
        return list(verdicts)
    found = []
    for verdict, rollout, limit in zip(verdicts, rollouts, limits, strict=True):
        buffer = min(objective.overlong_buffer or max(1, limit // 5), limit)
        off = soft_overlong(
            len(rollout.token_ids_T), limit=limit, buffer=buffer, penalty=objective.overlong_penalty
        )
        earned = verdict.token_rewards
        if verdict.reward is not None:
            if earned:
                earned = (*earned[:-1], (earned[-1] or 0.0) + off)
            verdict = replace(
                verdict,
                reward=verdict.reward + off,
                parts={**verdict.parts, OVERLONG: off},
                terms={**verdict.terms, OVERLONG: off},
                token_rewards=earned,
            )
        found.append(verdict)
    return found


def without_penalty(verdict: Verdict) -> Verdict:
    """The verdict as the rewards gave it, before the soft penalty on long responses; the same where there is none."""
    off = verdict.terms.get(OVERLONG)
    if off is None or verdict.reward is None:
        return verdict
    earned = verdict.token_rewards
    if earned:
        earned = (*earned[:-1], (earned[-1] or 0.0) - off)
    return replace(verdict, reward=verdict.reward - off, token_rewards=earned)


def has_spread(group: Group, objective: ObjectiveConfig) -> bool:
    """True when the rewards of a group are not all equal; a penalty on length alone is no spread."""
    verdicts_G = tuple(without_penalty(verdict) for verdict in group.verdicts_G)
    greedy = group.greedy
    if greedy is not None:
        greedy = replace(greedy, verdict=without_penalty(greedy.verdict))
    return not judge(replace(group, verdicts_G=verdicts_G, greedy=greedy), objective).zero_spread


def judge_all(groups: Sequence[Group], objective: ObjectiveConfig) -> list[Judged]:
    """`judge` for every group of a batch."""
    return [judge(group, objective) for group in groups]


def advantages(
    judged: Sequence[Judged],
    estimate: Estimator,
    *,
    credit: Literal["process", "outcome"] = "process",
    penalties: Sequence[PerToken] | None = None,
    values: Values | None = None,
) -> list[PerToken]:
    """The advantage of every token of a batch; groups never mix unless the estimator says so.

    An estimator over rollouts sees all that have a reward, one over tokens those that enter the loss.

    Args:
        judged: the batch.
        estimate: the estimator with its settings.
        credit: what becomes of rewards along a response, see `ObjectiveConfig.credit`.
        penalties: per group and rollout what the KL takes off the reward at each token [T]; None for nothing.
        values: per group and rollout what a critic expects at each token [T]; None without a critic. Only those of
            rollouts in the loss are looked at.

    Returns:
        Per group one array [T] per rollout; 0 at tokens that are not trained, and throughout what is left out.

    Raises:
        TrainingError: the estimator gave a wrong shape or a non-finite number.
    """
    members = _members(judged, estimate)
    found = [[np.zeros(len(rollout.token_ids_T)) for rollout in one.group.rollouts_G] for one in judged]
    if members:
        evidence, earned = _evidence(judged, members, credit, penalties, values)
        try:
            along = earned is not None and not estimate.by_token
            estimated = process(estimate, evidence, earned) if along and earned else estimate(evidence)
        except ValueError as error:
            raise TrainingError(str(error)) from error
        for (g, i), advantages_T in zip(members, estimated, strict=True):
            if judged[g].in_loss_G[i]:
                found[g][i][judged[g].group.rollouts_G[i].trainable_T] = advantages_T
    return [tuple(arrays) for arrays in found]


def value_targets(
    judged: Sequence[Judged],
    estimate: Estimator,
    *,
    credit: Literal["process", "outcome"] = "process",
    penalties: Sequence[PerToken] | None,
    values: Values,
) -> list[tuple[FloatArray, ...]]:
    """What the critic is to learn at every token of a batch.

    Args:
        judged: the batch.
        estimate: the estimator that the values are for.
        credit: as in `advantages`.
        penalties: as in `advantages`.
        values: as in `advantages`.

    Returns:
        Per group one array [T] per rollout; NaN at tokens that are not trained, and throughout what is left out.

    Raises:
        TrainingError: the estimator's targets have a wrong shape or are not finite.
    """
    members = _members(judged, estimate)
    found = [
        [np.full(len(rollout.token_ids_T), np.nan, dtype=np.float32) for rollout in one.group.rollouts_G]
        for one in judged
    ]
    if members:
        try:
            learned = estimate.targets(_evidence(judged, members, credit, penalties, values)[0])
        except ValueError as error:
            raise TrainingError(str(error)) from None
        for (g, i), targets_T in zip(members, learned, strict=True):
            if judged[g].in_loss_G[i]:
                found[g][i][judged[g].group.rollouts_G[i].trainable_T] = targets_T
    return [tuple(arrays) for arrays in found]


def _members(judged: Sequence[Judged], estimate: Estimator) -> list[tuple[int, int]]:
    """(group, rollout) of all that the estimator sees."""
    return [
        (g, i)
        for g, one in enumerate(judged)
        for i in np.flatnonzero(one.in_loss_G if estimate.by_token else one.counted_G).tolist()
    ]


def _evidence(
    judged: Sequence[Judged],
    members: Sequence[tuple[int, int]],
    credit: str,
    penalties: Sequence[PerToken] | None,
    values: Values | None,
) -> tuple[Evidence, tuple[NDArray[np.bool_], ...] | None]:
    """What the chosen rollouts show, as (group, rollout) pairs, and at which of their tokens something was earned.

    The latter is None where every rollout has one reward at its end.
    """
    verdicts = [judged[g].group.verdicts_G[i] for g, i in members]
    masks = [judged[g].group.rollouts_G[i].trainable_T for g, i in members]
    along = credit == "process" and any(verdict.token_rewards is not None for verdict in verdicts)
    earned = [_earned(v, mask, along=along) for v, mask in zip(verdicts, masks, strict=True)]
    task_N = np.array([verdict.reward for verdict in verdicts], dtype=np.float64)
    task_NT = tuple(rewards_T for rewards_T, _ in earned)
    rewards_N, rewards_NT = task_N, task_NT
    if penalties is not None:
        off_NT = [penalties[g][i][mask] for (g, i), mask in zip(members, masks, strict=True)]
        rewards_NT = tuple(r - off for r, off in zip(task_NT, off_NT, strict=True))
        rewards_N = task_N - np.array([off.sum() for off in off_NT])
    evidence = Evidence(
        rewards_N=rewards_N,
        rewards_NT=rewards_NT,
        task_rewards_N=task_N,
        task_rewards_NT=task_NT,
        groups_N=np.array([g for g, _ in members], dtype=np.int64),
        lengths_N=np.array([int(mask.sum()) for mask in masks], dtype=np.int64),
        values_NT=None
        if values is None
        else tuple(
            values[g][i][mask].astype(np.float64) for (g, i), mask in zip(members, masks, strict=True)
        ),
        greedy_rewards_N=_greedy_rewards(judged, members),
    )
    return evidence, tuple(at_T for _, at_T in earned) if along else None


def _earned(
    verdict: Verdict, trainable_T: NDArray[np.bool_], *, along: bool
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """By trained token: what was earned, and whether anything was said. One reward is earned with the last.

    What was said of a token that is not trained goes to the last trained one before it, or else to the first.
    """
    length = int(trainable_T.sum())
    rewards_T, at_T = np.zeros(length), np.zeros(length, dtype=np.bool_)
    if not length:
        return rewards_T, at_T
    if not along or verdict.token_rewards is None:
        rewards_T[-1], at_T[-1] = verdict.reward, True
        return rewards_T, at_T
    places = np.maximum(np.cumsum(trainable_T) - 1, 0)
    for place, value in zip(places, verdict.token_rewards, strict=True):
        if value is not None:
            rewards_T[place] += value
            at_T[place] = True
    at_T[-1] |= not at_T.any()  # nothing was said at all: one reward of 0
    return rewards_T, at_T


def _greedy_rewards(
    judged: Sequence[Judged], members: Sequence[tuple[int, int]]
) -> NDArray[np.float64] | None:
    """Of the greedy baseline of each member's group; None where none was sampled."""
    greedy = [judged[g].group.greedy for g, _ in members]
    if any(one is None for one in greedy):
        return None
    return np.array([one.verdict.reward for one in greedy if one is not None], dtype=np.float64)
