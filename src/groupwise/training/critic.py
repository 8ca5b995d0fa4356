"""The critic in training: its values of a batch, and its own updates beside the policy's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from groupwise.config.critic import CriticConfig
from groupwise.config.training import TrainingConfig
from groupwise.errors import CheckpointError, ConfigError
from groupwise.health.metric import Mean, Metric, Total, combine
from groupwise.model.critic import Critic, build_critic, memory_of
from groupwise.model.load import Policy
from groupwise.model.logprobs import TokenLogprobs
from groupwise.objective.value_loss import value_loss
from groupwise.records import Rollout
from groupwise.records.health_file import Fault
from groupwise.records.nouns import FloatArray
from groupwise.training.advantages import Judged
from groupwise.training.batch import AnyResponse, Row, divide, families_of, split
from groupwise.training.distributed import ALONE, Ranks
from groupwise.training.inputs import Inputs
from groupwise.training.non_finite import Seen, explain
from groupwise.training.weights import GuardedStep, Optimizer, learning_rate


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Response:
    prompt_ids: NDArray[np.int32]
    rollout: Rollout


class ValueTrainer:
    """Scores batches with the critic and trains it, with an optimiser and a rate of its own."""

    def __init__(
        self,
        critic: Critic,
        config: CriticConfig,
        training: TrainingConfig,
        *,
        steps: int,
        policy: torch.nn.Module,
        ranks: Ranks = ALONE,
    ) -> None:
        """Take the parts.

        Args:
            critic: to be trained.
            config: rate, clip and warm-up.
            training: optimiser, schedule, and the limits of a forward pass, which are the policy's.
            steps: of the run.
            policy: to compare the memory with.
            ranks: who share the work.
        """
        self.ranks = ranks
        self.critic = critic
        self.config = config
        self.steps = steps
        self.policy = policy
        self.training = training.model_copy(update={"learning_rate": config.learning_rate})
        self.optimizer = Optimizer(critic, self.training)
        self.guard = GuardedStep(self.optimizer, self.training, rate="critic.learning_rate")

    def reporting(self, report: Callable[[Fault], None]) -> ValueTrainer:
        """Itself, with somebody who is told why an update is skipped."""
        self.guard.report = report
        return self

    def begin(self, step: int) -> None:
        """Set the rate of a step, 0 for the first."""
        self.optimizer.set_rate(learning_rate(self.training, step, self.steps))

    def alone(self, step: int) -> bool:
        """True in the first steps, 1 for the first, in which the policy waits for the critic."""
        return step <= self.config.warmup_steps

    def state(self) -> dict[str, Any]:
        """The critic's trained weights, its optimiser, and its counts."""
        trained = {name: p.detach() for name, p in self.critic.named_parameters() if p.requires_grad}
        return {"weights": trained, "optimizer": self.optimizer.state(), "updates": self.guard.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `checkpoint.state.Stateful`.

        Raises:
            CheckpointError: of another critic.
        """
        own = {name: p for name, p in self.critic.named_parameters() if p.requires_grad}
        saved = state["weights"]
        if {name: list(p.shape) for name, p in saved.items()} != {n: list(p.shape) for n, p in own.items()}:
            raise CheckpointError(
                "the checkpoint's critic has other weights than this run's; resume with the model, lora and "
                "critic.backbone that the run was started with"
            )
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(saved[name])
        self.optimizer.restore(state["optimizer"])
        self.guard.restore(state["updates"])

    def values(self, judged: Sequence[Judged]) -> list[tuple[FloatArray, ...]]:
        """What the critic expects at every token of a batch, per group one array [T] per rollout.

        NaN throughout a rollout that is not in the loss.
        """
        responses = [
            _Response(prompt_ids=one.group.prompt.token_ids, rollout=rollout)
            for one in judged
            for i, rollout in enumerate(one.group.rollouts_G)
            if one.in_loss_G[i]
        ]
        scored: list[FloatArray] = []
        self.critic.eval()
        with torch.no_grad():
            for part in self._parts(self._share(responses)):
                values_M = self.critic(families_of(part)).float().cpu().numpy()
                scored += np.split(values_M, np.cumsum([len(r.rollout.token_ids_T) for r in part])[:-1])
        following = chain.from_iterable(self.ranks.gather(scored))
        return [
            tuple(
                next(following)
                if one.in_loss_G[i]
                else np.full(len(rollout.token_ids_T), np.nan, dtype=np.float32)
                for i, rollout in enumerate(one.group.rollouts_G)
            )
            for one in judged
        ]

    def update(self, rows: Sequence[Row]) -> dict[str, Metric]:
        """One optimiser step on the mean loss over the trained tokens of an optimiser batch, shared among the ranks.

        Raises:
            TrainingError: the loss or gradient was not finite `max_bad_steps` times in a row.
        """
        total = sum(row.trainable_tokens for row in rows)
        self.optimizer.zero_grad()
        self.critic.train()
        loss = 0.0
        measured: list[dict[str, Metric]] = []
        seen: list[Seen] = []
        for part in self._parts(self._share(rows)):
            with torch.enable_grad():
                share, metrics, values_M = self._loss(part, total)
                torch.autograd.backward(share)
            loss += float(share.detach())
            measured.append(metrics)
            seen.append(_seen(part, values_M))
        gathered = self.ranks.gather((loss, combine(measured), self.optimizer.has_gradient))
        self.optimizer.add_up(
            self.ranks.add_up, [any(has) for has in zip(*(g[2] for g in gathered), strict=True)]
        )
        loss, metrics = sum(each for each, _, _ in gathered), combine(each for _, each, _ in gathered)
        applied = self.guard.apply(loss, functools.partial(self._explain, seen))
        metrics["critic/skipped_updates"] = applied["training/skipped_updates"]
        if "grad/norm" in applied:
            metrics["critic/grad_norm"] = applied["grad/norm"]
        return metrics

    def _explain(self, seen: Sequence[Seen], loss: float, norm: float, gradients: Sequence[str]) -> Fault:
        faults = self.ranks.gather(explain(seen, loss, norm, gradients))
        return next((fault for fault in faults if fault.offenders), faults[0])

    def _share(self, rows: Sequence[AnyResponse]) -> list[AnyResponse]:
        return divide(rows, self.ranks.count)[self.ranks.number]

    def _parts(self, rows: Sequence[AnyResponse]) -> Iterator[list[AnyResponse]]:
        return split(
            rows,
            tokens=self.training.micro_batch_tokens,
            rollouts=self.training.micro_batch_rollouts,
            shared=self.critic.scorer.shared,
        )

    def _loss(self, rows: Sequence[Row], total: int) -> tuple[torch.Tensor, dict[str, Metric], torch.Tensor]:
        """The share of some rows in the loss of the batch, what it was made of, and the values, shape [M]."""
        trained = torch.from_numpy(np.concatenate([row.rollout.trainable_T for row in rows]))
        every_M = self.critic(families_of(rows))
        values_M = every_M[trained.to(every_M.device)]
        old_M = torch.from_numpy(_trained(rows, "values_T")).to(values_M)
        targets_M = torch.from_numpy(_trained(rows, "value_targets_T")).to(values_M)
        terms = value_loss(values_M, old_M, targets_M, clip=self.config.clip)
        count = len(values_M)
        loss: torch.Tensor = terms.loss_M.sum() / total
        metrics: dict[str, Metric] = {
            "critic/loss": Mean(float(terms.loss_M.detach().sum()), count),
            "critic/clip_fraction": Mean(float(terms.clipped_M.sum()), count),
        }
        return loss, metrics, values_M.detach()

    def measure(self, rows: Sequence[Row]) -> dict[str, Metric]:
        """How well the critic knew a batch before it learned from it."""
        values, targets = _trained(rows, "values_T"), _trained(rows, "value_targets_T")
        metrics: dict[str, Metric] = {
            "critic/value_mean": Mean.of(values),
            "critic/target_mean": Mean.of(targets),
            "critic/learning_rate": Mean(self.optimizer.rate, 1),
        }
        spread = float(targets.var()) if len(targets) else 0.0
        if spread > 0:
            metrics["critic/explained_variance"] = Mean(1.0 - float((targets - values).var()) / spread, 1)
        return metrics

    def memory(self) -> dict[str, Metric]:
        """What the critic takes beside the policy, and as a share of what the policy takes; activations left out."""
        own, policy = memory_of(self.critic.parameters()), memory_of(self.policy.parameters())
        return {
            "critic/memory_mb": Total(own.total / 2**20),
            "critic/memory_ratio": Mean(own.total, policy.total),
        }

    def introduced(self) -> str:
        """The critic in a sentence."""
        own, policy = memory_of(self.critic.parameters()), memory_of(self.policy.parameters())
        where = "reads the policy's hidden states" if self.critic.own is None else "a backbone of its own"
        return (
            f"critic: {where}; {own.weights / 2**20:.1f} MB of weights and {own.training / 2**20:.1f} MB of gradients "
            f"and optimiser state, {own.total / policy.total:.1%} of what the policy takes ({policy.total / 2**20:.1f} "
            "MB), activations left out"
        )


def value_trainer(
    inputs: Inputs,
    policy: Policy,
    scorer: TokenLogprobs,
    notices: list[str],
    *,
    steps: int,
    longest_tokens: int,
    ranks: Ranks = ALONE,
) -> ValueTrainer | None:
    """The critic of a run; None where its advantage asks for no values.

    Args:
        inputs: configuration and estimator.
        policy: as loaded.
        scorer: what scores the policy's responses.
        notices: what people are told at the start; a sentence on the critic is added.
        steps: of the run.
        longest_tokens: longest prompt and response together.
        ranks: who share the work.

    Raises:
        ConfigError: the warm-up leaves the policy no step.
    """
    config = inputs.config
    if "values" not in inputs.estimate.needs:
        return None
    if config.critic.warmup_steps >= steps:
        raise ConfigError(
            f"critic.warmup_steps is {config.critic.warmup_steps}, but the run has {steps} steps, so the policy would "
            "never be trained; lower it"
        )
    critic = build_critic(policy, scorer, config.critic, longest_tokens=longest_tokens)
    trainer = ValueTrainer(
        critic, config.critic, config.training, steps=steps, policy=policy.model, ranks=ranks
    )
    notices.append(trainer.introduced())
    return trainer


def _seen(rows: Sequence[Row], values_M: torch.Tensor) -> Seen:
    """What is needed to say later where a number that is not finite came from."""
    counts = torch.tensor([row.trainable_tokens for row in rows])
    targets_M = torch.from_numpy(_trained(rows, "value_targets_T"))
    return Seen(
        rollouts=[row.rollout for row in rows],
        rollout_M=torch.repeat_interleave(torch.arange(len(rows)), counts),
        values={"value target": targets_M, "value": values_M},
    )


def _trained(rows: Sequence[Row], name: str) -> NDArray[np.float64]:
    """One of the critic's fields at the trained tokens of all rows, shape [M]."""
    picked = [getattr(row, name)[row.rollout.trainable_T] for row in rows]
    return np.concatenate([np.zeros(0), *picked])
