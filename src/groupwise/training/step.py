"""One update: forward, loss and backward over micro-batches, then the optimiser."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from groupwise.config.training import TrainingConfig
from groupwise.health.metric import Largest, Mean, Metric, Smallest, Spread, Total, combine
from groupwise.objective.loss import Objective, TokenTerms, policy_loss
from groupwise.records import Rollout, TrainingGroup
from groupwise.records.health_file import Fault
from groupwise.training.batch import (
    MicroBatch,
    Row,
    rows_of,
    weighted,
)
from groupwise.training.forward import Forward
from groupwise.training.non_finite import Seen, explain
from groupwise.training.weights import GuardedStep, Optimizer


class Updater:
    """Changes the policy by one optimiser step at a time."""

    def __init__(
        self,
        forward: Forward,
        objective: Objective,
        aggregate: Callable[[NDArray[np.int64]], NDArray[np.float64]],
        optimizer: Optimizer,
        config: TrainingConfig,
        *,
        outside: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]] | None = None,
        clip_width: float | None = None,
        correct: Callable[[Rollout, NDArray[np.float32]], NDArray[np.float32]] | None = None,
        kl_in_loss: bool = True,
        report: Callable[[Fault], None] | None = None,
    ) -> None:
        """Take the parts.

        Args:
            forward: the policy and its micro-batch limits.
            objective: what is minimised.
            aggregate: token counts [N] to the weight of one token of each rollout [N].
            optimizer: parameters, their update and its schedule.
            config: gradient norm and the bound on bad steps.
            outside: ratio and advantages [M] to where the surrogate's bounds take the gradient away, below and above;
                None for a surrogate without bounds.
            clip_width: how far the ratio may move before a bound bites; None for a surrogate without bounds.
            correct: a rollout and its old log-probs [T] to importance weights [T]; None when the sampler's log-probs
                are the old ones.
            kl_in_loss: the KL is a term of the loss; else it was taken off the rewards, and is not computed here.
            report: told why each update that is skipped is.
        """
        self.forward = forward
        self.objective = objective
        self.aggregate = aggregate
        self.optimizer = optimizer
        self.outside = outside
        self.clip_width = clip_width
        self.correct = correct
        self.kl_in_loss = kl_in_loss
        self.guard = GuardedStep(optimizer, config, report=report)

    @property
    def updates(self) -> int:
        """How often the weights have been changed."""
        return self.guard.updates

    def rows(self, groups: Sequence[TrainingGroup]) -> list[Row]:
        """The rollouts of a batch that are in the loss."""
        return rows_of(groups, self.correct, reference=self.kl_in_loss)

    def update(self, rows: Sequence[Row], *, first: bool = True) -> dict[str, Metric]:
        """One optimiser step on the rows of one optimiser batch.

        Args:
            rows: in the loss.
            first: the weights are still those that sampled the rows, so that policy less sampler is the gap between
                sampler and trainer and nothing else.

        Rows that cannot move the policy (advantage 0, no KL and no entropy bonus) are not computed, which is exact,
        but count in every divisor. Every rank is given all rows, computes its share of them, and ends with the sum of
        all gradients and the same metrics.

        Raises:
            TrainingError: the loss or gradient was not finite `max_bad_steps` times in a row.
        """
        rows = weighted(rows, self.aggregate)
        every = self.objective.beta != 0 or self.objective.entropy_bonus != 0
        computed = [row for row in rows if row.weight != 0 and (every or row.has_advantage)]
        self.optimizer.zero_grad()
        self.forward.scorer.model.train()
        loss = 0.0
        parts: list[dict[str, Metric]] = []
        seen: list[Seen] = []
        mine = self.forward.share(computed)
        following = iter(mine)
        batches = self.forward.micro_batches(mine)
        recorded = self.forward.scorer.recorded
        reuse = first and len(batches) == 1 and recorded is not None  # the record is let go while it is used
        if recorded is not None and not reuse:
            recorded.forget()  # else it would lie beside the activations
        for batch in batches:
            with torch.enable_grad():  # whoever calls, and whatever a reward has switched off
                terms, policy_logprobs_M = self._terms(batch, reuse=reuse)
                self.forward.scorer.backward(terms.loss)
            # The clamp of the ratio hides an infinite log-prob from the loss.
            loss += float(terms.loss.detach()) if bool(policy_logprobs_M.isfinite().all()) else math.nan
            parts.append(self._measure(batch, terms, policy_logprobs_M))
            seen.append(_seen(batch, list(islice(following, batch.rollouts)), terms, policy_logprobs_M))
            if first:
                parts.append(_gap(policy_logprobs_M, batch.sampler_logprobs_M, self.forward.again(batch)))
        if first and recorded is not None:
            parts.append({"tokens/reused": Total(recorded.reused)})
        for _ in range(self.forward.idle_passes(computed)):
            self.forward.idle(computed[0])
        losses, measured = self._together(loss, parts)
        loss, metrics = sum(losses), combine(measured)
        metrics["policy/loss"] = Mean(loss, 1)
        trained = sum(row.trainable_tokens for row in rows)
        # A row that is not computed has advantage 0: its surrogate is 0, and no clip takes its gradient away.
        for name in ("policy/token_loss", "clip/low_fraction", "clip/high_fraction"):
            if name in metrics:
                metrics[name] = Mean(metrics[name].value * sum(r.trainable_tokens for r in computed), trained)
        return metrics | self.guard.apply(loss, functools.partial(self._explain, seen))

    def _together(
        self, loss: float, parts: Sequence[dict[str, Metric]]
    ) -> tuple[list[float], list[dict[str, Metric]]]:
        """The losses and metrics of all ranks, whose gradients are added up."""
        ranks = self.forward.ranks
        gathered = ranks.gather((loss, combine(parts), self.optimizer.has_gradient))
        if not ranks.sharded:
            wanted = [any(has) for has in zip(*(has for _, _, has in gathered), strict=True)]
            self.optimizer.add_up(ranks.add_up, wanted)
        return [loss for loss, _, _ in gathered], [metrics for _, metrics, _ in gathered]

    def _explain(self, seen: Sequence[Seen], loss: float, norm: float, gradients: Sequence[str]) -> Fault:
        """Why an update cannot be made, by the first rank that sees where it came from."""
        faults = self.forward.ranks.gather(explain(seen, loss, norm, gradients))
        return next((fault for fault in faults if fault.offenders), faults[0])

    def _terms(self, batch: MicroBatch, *, reuse: bool) -> tuple[TokenTerms, torch.Tensor]:
        policy_logprobs_M, entropy_M = self.forward.logprobs(batch, reuse=reuse)
        terms = policy_loss(
            self.objective,
            policy_logprobs_M=policy_logprobs_M,
            old_logprobs_M=batch.old_logprobs_M,
            advantages_M=batch.advantages_M,
            rollout_M=batch.rollout_M,
            rollouts=batch.rollouts,
            weights_M=batch.weights_M,
            correction_M=batch.correction_M,
            reference_logprobs_M=batch.reference_logprobs_M,
            entropy_M=entropy_M,
        )
        return terms, policy_logprobs_M.detach()

    def _measure(self, batch: MicroBatch, terms: TokenTerms, policy_M: torch.Tensor) -> dict[str, Metric]:
        """Sums over one micro-batch, from what the loss computed anyway."""
        count = len(policy_M)
        metrics: dict[str, Metric] = {
            "policy/token_loss": Mean(-float(terms.surrogate_M.sum()), count),
            "ratio/mean": Mean(float(terms.ratio_M.sum()), count),
            "ratio/max": Largest(float(terms.ratio_M.max())),
            "ratio/min": Smallest(float(terms.ratio_M.min())),
            "ratio/clamped_count": Total(float(terms.clamped_M.sum())),
            "ratio/log_std": _spread(terms.log_ratio_M),
        }
        if self.outside is not None:
            low_M, high_M = self.outside(terms.ratio_M, batch.advantages_M)
            metrics["clip/low_fraction"] = Mean(float(low_M.sum()), count)
            metrics["clip/high_fraction"] = Mean(float(high_M.sum()), count)
        if terms.kl_M is not None:
            metrics["kl/token_mean"] = Mean(float(terms.kl_M.sum()), count)
            metrics["kl/rollout_mean"] = Mean(float(terms.kl_M.sum()), batch.rollouts)
            metrics["kl/capped_fraction"] = Mean(float(terms.kl_capped_M.sum()), count)
        if batch.correction_M is not None:
            metrics["sampler/correction_mean"] = Mean(float(batch.correction_M.sum()), count)
        return metrics


def _seen(batch: MicroBatch, rows: Sequence[Row], terms: TokenTerms, policy_M: torch.Tensor) -> Seen:
    """What is needed to say later where a number that is not finite came from."""
    return Seen(
        rollouts=[row.rollout for row in rows],
        rollout_M=batch.rollout_M,
        values={
            "sampler log-prob": batch.sampler_logprobs_M,
            "old log-prob": batch.old_logprobs_M,
            "reference log-prob": batch.reference_logprobs_M,
            "advantage": batch.advantages_M,
            "correction": batch.correction_M,
            "policy log-prob": policy_M,
            "ratio overflow": terms.ratio_M,
            "KL overflow": terms.kl_M,
        },
        clamped_M=terms.clamped_M,
        log_ratio_M=terms.log_ratio_M,
    )


def _spread(values_M: torch.Tensor) -> Spread:
    mean = float(values_M.mean())
    return Spread(len(values_M), mean, float(((values_M - mean) ** 2).sum()))


def _gap(policy_M: torch.Tensor, sampler_M: torch.Tensor, again_M: torch.Tensor | None) -> dict[str, Metric]:
    """Trainer less sampler, on tokens that the same weights drew.

    Where the trainer took its log-probs from the sampler, those of the backward pass count, on tokens with gradient.
    """
    gap_M = policy_M - sampler_M
    if again_M is not None:
        gap_M = (again_M - sampler_M)[~again_M.isnan()]
        if not len(gap_M):
            return {}
    return {
        "sampler/gap_token_mean": Mean(float(gap_M.sum()), len(gap_M)),
        "sampler/gap_abs_mean": Mean(float(gap_M.abs().sum()), len(gap_M)),
        "sampler/gap_abs_max": Largest(float(gap_M.abs().max())),
    }
