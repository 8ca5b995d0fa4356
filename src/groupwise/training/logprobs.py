"""The log-probs that a batch needs before its first update: old ones and the reference's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from groupwise.config.objective import KLConfig, ObjectiveConfig
from groupwise.health.metric import Mean, Metric, combine
from groupwise.objective.kl import KL_ESTIMATORS, capped
from groupwise.objective.loss import sampler_correction
from groupwise.records import Rollout, TrainingGroup
from groupwise.rollouts.engine import Engine, Sampling
from groupwise.training.advantages import Judged, PerToken
from groupwise.training.forward import Forward, score_responses


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Response:
    prompt_ids: NDArray[np.int32]
    rollout: Rollout


def old_is_sampler(objective: ObjectiveConfig, engine: Engine, sampling: Sampling) -> bool:
    """True when the sampler's log-probs serve as the old ones: the same model and precision, drawn from as it is."""
    if objective.old_source == "auto":
        return engine.same_as_trainer and not sampling.reshapes
    return objective.old_source == "sampler"


def corrector(objective: ObjectiveConfig) -> Callable[[Rollout, NDArray[np.float32]], NDArray[np.float32]]:
    """The truncated importance weight of each token of a rollout, given its old log-probs [T]."""

    def correct(rollout: Rollout, old_logprobs_T: NDArray[np.float32]) -> NDArray[np.float32]:
        old, sampler = torch.from_numpy(old_logprobs_T), torch.from_numpy(rollout.sampler_logprobs_T)
        weights: NDArray[np.float32] = sampler_correction(old, sampler, cap=objective.correction_cap).numpy()
        return weights

    return correct


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Penalties:
    """The KL of a batch, taken off its rewards."""

    of_groups: list[PerToken]
    """Per group and rollout, shape [T]: beta times the capped estimate; 0 where not trained or without a reward."""
    metrics: dict[str, Metric]
    """The KL under the names of docs/records.md."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Logprobs:
    """Of one group, per rollout and token, shape [T] each; NaN throughout a rollout that was not scored."""

    old_GT: tuple[NDArray[np.float32], ...]
    """Of the policy that begins the batch."""
    reference_GT: tuple[NDArray[np.float32], ...] | None
    """Of the reference; None without one."""


def logprobs_of(
    judged: Sequence[Judged],
    *,
    policy: Forward | None,
    reference: Forward | None,
    reference_weights: Callable[[], AbstractContextManager[None]] | None,
) -> list[Logprobs]:
    """The log-probs that advantages and update need.

    Args:
        judged: the batch.
        policy: scores the old log-probs; None when the sampler's are the old ones.
        reference: scores the reference's; None when there is no reference.
        reference_weights: context in which `reference` computes with the reference's weights.
    """
    responses = [
        _Response(prompt_ids=j.group.prompt.token_ids, rollout=rollout)
        for j in judged
        for i, rollout in enumerate(j.group.rollouts_G)
        if j.scored_G[i]
    ]
    sampled = [r.rollout.sampler_logprobs_T for r in responses]
    old = iter(sampled if policy is None else score_responses(policy, responses))
    referred = None
    if reference is not None and reference_weights is not None:
        with reference_weights():
            referred = iter(score_responses(reference, responses))
    return [
        Logprobs(
            old_GT=_per_rollout(j, old),
            reference_GT=None if referred is None else _per_rollout(j, referred),
        )
        for j in judged
    ]


def policy_and_reference(
    responses: Sequence[tuple[NDArray[np.int32], Rollout]],
    *,
    policy: Forward,
    reference: Forward | None,
    reference_weights: Callable[[], AbstractContextManager[None]] | None,
) -> tuple[list[NDArray[np.float32]], list[NDArray[np.float32]] | None]:
    """Log-probs of every token of some responses, shape [T] each, under the policy and under the reference.

    Args:
        responses: prompt ids and response; those of one prompt side by side.
        policy: scores the policy's.
        reference: as in `logprobs_of`.
        reference_weights: as in `logprobs_of`.
    """
    asked = [_Response(prompt_ids=prompt_ids, rollout=rollout) for prompt_ids, rollout in responses]
    old = score_responses(policy, asked)
    if reference is None or reference_weights is None:
        return old, None
    with reference_weights():
        return old, score_responses(reference, asked)


def kl_penalties(
    judged: Sequence[Judged], logprobs: Sequence[Logprobs], config: KLConfig, beta: float
) -> Penalties | None:
    """What the KL takes off the rewards, from the policy that begins the batch; None when it acts elsewhere.

    Args:
        judged: the batch.
        logprobs: of the same groups; those of the reference are there.
        config: estimator, place and caps.
        beta: in force.
    """
    if config.place != "reward" or config.beta == 0:
        return None
    estimate = KL_ESTIMATORS[config.estimator]
    found: list[PerToken] = []
    metrics: list[dict[str, Metric]] = []
    for j, of_group in zip(judged, logprobs, strict=True):
        arrays = []
        for i, rollout in enumerate(j.group.rollouts_G):
            penalty_T = np.zeros(len(rollout.token_ids_T))
            if j.counted_G[i] and of_group.reference_GT is not None and rollout.trainable_T.any():
                trained_T = rollout.trainable_T
                old_T, reference_T = (
                    torch.from_numpy(array[i][trained_T].astype(np.float64))
                    for array in (of_group.old_GT, of_group.reference_GT)
                )
                kl_T = estimate(old_T, reference_T, torch.ones_like(old_T))
                one = torch.zeros(len(kl_T), dtype=torch.int64)
                held_T, capped_T = capped(kl_T, one, 1, token=config.cap_token, rollout=config.cap_rollout)
                penalty_T[trained_T] = beta * held_T.numpy()
                total = float(kl_T.sum())
                metrics.append(
                    {
                        "kl/token_mean": Mean(total, len(kl_T)),
                        "kl/rollout_mean": Mean(total, 1),
                        "kl/capped_fraction": Mean(float(capped_T.sum()), len(kl_T)),
                    }
                )
            arrays.append(penalty_T)
        found.append(tuple(arrays))
    return Penalties(of_groups=found, metrics=combine(metrics))


def training_groups(
    judged: Sequence[Judged],
    logprobs: Sequence[Logprobs],
    advantages: Sequence[PerToken],
    *,
    values: Sequence[tuple[NDArray[np.float32], ...]] | None = None,
    targets: Sequence[tuple[NDArray[np.float32], ...]] | None = None,
) -> list[TrainingGroup]:
    """All that is known of each group before the update, in the order of the batch.

    Args:
        judged: the batch.
        logprobs: of each group.
        advantages: of each group.
        values: what a critic expects, of each group; None without one.
        targets: what it is to learn, of each group; None without one.
    """
    return [
        TrainingGroup(
            group=j.group,
            advantages_GT=advantages_GT,
            in_loss_G=j.in_loss_G,
            zero_spread=j.zero_spread,
            old_logprobs_GT=of_group.old_GT,
            reference_logprobs_GT=of_group.reference_GT,
            values_GT=None if values is None else values[g],
            value_targets_GT=None if targets is None else targets[g],
        )
        for g, (j, of_group, advantages_GT) in enumerate(zip(judged, logprobs, advantages, strict=True))
    ]


def _per_rollout(judged: Judged, scored: Iterator[NDArray[np.float32]]) -> tuple[NDArray[np.float32], ...]:
    return tuple(
        next(scored) if judged.scored_G[i] else np.full(len(rollout.token_ids_T), np.nan, dtype=np.float32)
        for i, rollout in enumerate(judged.group.rollouts_G)
    )
