"""Wrong answers turned into teaching texts: a note that the answer is wrong is inserted, and may be trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.config.objective import TeachingConfig
from groupwise.health.metric import Metric, Total
from groupwise.records import Rollout, StopReason, TrainingGroup, Verdict
from groupwise.training.advantages import without_penalty
from groupwise.training.logprobs import policy_and_reference
from groupwise.training.setup import Run


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Taught:
    """A rollout with the note in it."""

    rollout: Rollout
    """Its tokens, of which `inserted_T` are the note's; log-probs of tokens that have another past now are NaN."""
    from_T: NDArray[np.int64]
    """Which token of the rollout before each one was, shape [T]; -1 for the note's."""


def teach(
    run: Run, groups: Sequence[TrainingGroup], step: int
) -> tuple[list[TrainingGroup], dict[str, Metric]]:
    """The batch with a note in every wrong answer that is in the loss, and how many these are.

    A note at the end stands before the stop token; one at the start before the answer. Tokens that have another past
    than when they were sampled get the log-probs of the policy that begins the batch as old ones, so that their ratio
    begins at 1; the same stands in for the sampler's, which never drew them there. The reference's are computed again.
    Advantages were worked out before, from the answers as they were sampled.
    """
    chosen = run.config.objective.teaching
    if chosen is None:
        return list(groups), {}
    note = run.note_ids
    below = run.config.evaluate.pass_reward if chosen.below is None else chosen.below
    changed = {
        (g, i): insert(rollout, note, chosen, run.policy.decode)
        for g, entry in enumerate(groups)
        for i, rollout in enumerate(entry.group.rollouts_G)
        if entry.in_loss_G[i] and _wrong(entry.group.verdicts_G[i], below)
    }
    metrics: dict[str, Metric] = {
        "teaching/rollouts": Total(len(changed)),
        "teaching/tokens": Total(len(changed) * len(note)),
    }
    if not changed:
        return list(groups), metrics
    prompts = [groups[g].group.prompt for g, _ in changed]
    old, reference = policy_and_reference(
        [
            (prompt.token_ids, taught.rollout)
            for prompt, taught in zip(prompts, changed.values(), strict=True)
        ],
        policy=run.updater.forward,
        reference=run.reference_forward,
        reference_weights=run.reference_at(step),
    )
    found = list(groups)
    for k, ((g, i), taught) in enumerate(changed.items()):
        found[g] = _with(found[g], i, taught, chosen, old[k], None if reference is None else reference[k])
    return found, metrics


def insert(
    rollout: Rollout, note: NDArray[np.int32], chosen: TeachingConfig, decode: Callable[[list[int]], str]
) -> Taught:
    """A rollout with the note at its place.

    Args:
        rollout: as sampled.
        note: ids of the text, shape [tokens of the note].
        chosen: place, and what is trained.
        decode: ids to text.
    """
    length = len(rollout.token_ids_T)
    stopped = rollout.stop_reason is StopReason.STOP
    at = 0 if chosen.place == "start" else length - stopped
    none = np.full(len(note), -1)
    from_T = np.concatenate([np.arange(at), none, np.arange(at, length)])
    inserted_T = from_T < 0
    # Behind the note stands the stop token, or the whole answer: what it follows is not what it was drawn after.
    moved_T = (np.arange(len(from_T)) >= at) & ~inserted_T
    of_answer_T = ~inserted_T & ~(moved_T if chosen.place == "end" else np.zeros_like(moved_T))
    trainable_T = np.where(of_answer_T, chosen.answer != "mask", chosen.train_note)
    trainable_T &= inserted_T | rollout.trainable_T[from_T]
    sampler_T = np.where(inserted_T | moved_T, np.nan, rollout.sampler_logprobs_T[from_T])
    ids = np.where(inserted_T, 0, rollout.token_ids_T[from_T]).astype(np.int32)
    ids[inserted_T] = note
    taught = replace(
        rollout,
        token_ids_T=ids,
        trainable_T=trainable_T.astype(np.bool_),
        inserted_T=inserted_T,
        sampler_logprobs_T=sampler_T.astype(np.float32),
        kept_mass_T=_spread(rollout.kept_mass_T, from_T, 1.0),
        entropy_T=_spread(rollout.entropy_T, from_T, np.nan),
        text=decode((ids[:-1] if stopped else ids).tolist()),
    )
    return Taught(rollout=taught, from_T=from_T)


def untaught(entry: TrainingGroup, decode: Callable[[list[int]], str]) -> TrainingGroup:
    """The group with its rollouts as they were sampled, without notes; the same where there are none."""
    rollouts = entry.group.rollouts_G
    if all(rollout.inserted_T is None for rollout in rollouts):
        return entry
    keep = [
        np.ones(len(r.token_ids_T), dtype=np.bool_) if r.inserted_T is None else ~r.inserted_T
        for r in rollouts
    ]

    def cut(arrays: Any) -> Any:
        if arrays is None:
            return None
        return tuple(array[mask] for array, mask in zip(arrays, keep, strict=True))

    def plain(rollout: Rollout, mask: NDArray[np.bool_]) -> Rollout:
        if rollout.inserted_T is None:
            return rollout
        ids = rollout.token_ids_T[mask]
        stopped = rollout.stop_reason is StopReason.STOP
        return replace(
            rollout,
            token_ids_T=ids,
            trainable_T=np.ones(len(ids), dtype=np.bool_),
            inserted_T=None,
            sampler_logprobs_T=rollout.sampler_logprobs_T[mask],
            kept_mass_T=None if rollout.kept_mass_T is None else rollout.kept_mass_T[mask],
            entropy_T=None if rollout.entropy_T is None else rollout.entropy_T[mask],
            text=decode((ids[:-1] if stopped else ids).tolist()),
        )

    def verdict(given: Verdict, mask: NDArray[np.bool_]) -> Verdict:
        if given.token_rewards is None:
            return given
        return replace(
            given, token_rewards=tuple(v for v, m in zip(given.token_rewards, mask, strict=True) if m)
        )

    group = replace(
        entry.group,
        rollouts_G=tuple(plain(r, mask) for r, mask in zip(rollouts, keep, strict=True)),
        verdicts_G=tuple(verdict(v, mask) for v, mask in zip(entry.group.verdicts_G, keep, strict=True)),
    )
    return replace(
        entry,
        group=group,
        advantages_GT=cut(entry.advantages_GT),
        old_logprobs_GT=cut(entry.old_logprobs_GT),
        reference_logprobs_GT=cut(entry.reference_logprobs_GT),
    )


def _wrong(verdict: Verdict, below: float) -> bool:
    reward = without_penalty(verdict).reward
    return reward is not None and reward < below - 1e-9


def _with(
    entry: TrainingGroup,
    i: int,
    taught: Taught,
    chosen: TeachingConfig,
    old_T: NDArray[np.float32],
    reference_T: NDArray[np.float32] | None,
) -> TrainingGroup:
    """The group with rollout i taught."""
    from_T, rollout = taught.from_T, taught.rollout
    again_T = np.isnan(rollout.sampler_logprobs_T)
    rollout = replace(rollout, sampler_logprobs_T=np.where(again_T, old_T, rollout.sampler_logprobs_T))
    # Old log-probs of tokens with their past unchanged stay those that the batch began with.
    old_T = np.where(again_T, old_T, entry.old_logprobs_GT[i][from_T]).astype(np.float32)
    own_T = np.where(from_T < 0, 0.0, entry.advantages_GT[i][from_T])
    as_text_T = again_T if chosen.place == "end" else from_T < 0
    if chosen.answer == "weight":
        as_text_T = np.ones_like(again_T)
    advantages_T = np.where(as_text_T, chosen.weight, own_T) * rollout.trainable_T
    verdict = entry.group.verdicts_G[i]
    if verdict.token_rewards is not None:
        said = verdict.token_rewards
        verdict = replace(verdict, token_rewards=tuple(None if k < 0 else said[k] for k in from_T.tolist()))
    group = replace(
        entry.group,
        rollouts_G=_put(entry.group.rollouts_G, i, rollout),
        verdicts_G=_put(entry.group.verdicts_G, i, verdict),
    )
    referred = entry.reference_logprobs_GT
    return replace(
        entry,
        group=group,
        advantages_GT=_put(entry.advantages_GT, i, advantages_T),
        old_logprobs_GT=_put(entry.old_logprobs_GT, i, old_T),
        reference_logprobs_GT=None if referred is None else _put(referred, i, reference_T),
    )


def _put(values: tuple[Any, ...], i: int, value: Any) -> tuple[Any, ...]:
    return (*values[:i], value, *values[i + 1 :])


def _spread(array: Any, from_T: NDArray[np.int64], unknown: float) -> Any:
    if array is None:
        return None
    return np.where(from_T < 0, unknown, array[from_T]).astype(np.float32)
