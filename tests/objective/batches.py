"""Random ragged batches, and the package's own loss on them."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from groupwise import registry
from groupwise.objective.estimator import Estimator, Evidence
from groupwise.objective.kl import KL_ESTIMATORS
from groupwise.objective.loss import Objective, TokenTerms, policy_loss, sampler_correction
from groupwise.objective.ratios import RATIOS
from tests.reference.objective import Response, Settings

Batch = list[list[Response]]


def random_batch(seed: int, *, groups: int = 4, size: int = 5, longest: int = 9, far: float = 0.0) -> Batch:
    """Groups of ragged rollouts. Among them: equal rewards, untrained tokens, none at all.

    `far` is the share of tokens whose log-ratio is beyond the clamp; the e^20 of one drowns the digits of the others.
    """
    rng = np.random.default_rng(seed)

    def response(equal: bool) -> Response:
        n = int(rng.integers(0, longest + 1))
        old = -rng.exponential(1.0, n)
        jump = np.where(rng.random(n) < far, rng.choice([-23.0, 23.0], n), 0.0)
        return Response(
            reward=0.3 if equal else float(np.round(rng.normal(), 2)),
            trainable=(rng.random(n) < 0.8).tolist(),
            policy=(old + rng.normal(0.0, 0.4, n) + jump).tolist(),
            old=old.tolist(),
            sampler=(old + rng.normal(0.0, 0.5, n)).tolist(),
            reference=(old + rng.normal(0.0, 0.4, n)).tolist(),
            entropy=rng.exponential(1.0, n).tolist(),
        )

    return [[response(equal=g == 1) for _ in range(size)] for g in range(groups)]


def advantages_of(batch: Batch, settings: Settings) -> list[list[float]]:
    """Of each trained token of every rollout, as the package computes them."""
    function = registry.find("groupwise.objective.advantages", settings.advantage)
    known = registry.settings(function)
    estimate = Estimator(
        function, {k: getattr(settings, k) for k in ("std", "eps", "discount") if k in known}
    )
    rows = [response for group in batch for response in group]
    rewards = np.array([row.reward for row in rows])
    lengths = [sum(row.trainable) for row in rows]
    by_token = tuple(np.array([0.0] * (n - 1) + [r])[:n] for r, n in zip(rewards, lengths, strict=True))
    evidence = Evidence(
        rewards_N=rewards,
        rewards_NT=by_token,
        task_rewards_N=rewards,
        task_rewards_NT=by_token,
        groups_N=np.repeat(np.arange(len(batch)), [len(group) for group in batch]),
        lengths_N=np.array(lengths),
    )
    return [found.tolist() for found in estimate(evidence)]


def surrogate_of(settings: Settings) -> Callable[..., Any]:
    function = registry.find("groupwise.objective.surrogates", settings.surrogate)
    return functools.partial(function, **{k: getattr(settings, k) for k in registry.settings(function)})


class OnPackage:
    """The batch as the package takes it: flat, trained tokens only. `loss` of any part of the rollouts adds up."""

    def __init__(self, batch: Batch, settings: Settings, *, dtype: torch.dtype = torch.float64) -> None:
        self.rows = [response for group in batch for response in group]
        self.advantages = advantages_of(batch, settings)
        self.settings = settings
        self.dtype = dtype
        aggregate = registry.find("groupwise.objective.aggregations", settings.aggregation)
        if settings.aggregation == "constant":
            aggregate = functools.partial(aggregate, length=settings.length)
        self.weights = aggregate(np.array([sum(row.trainable) for row in self.rows])).tolist()
        self.objective = Objective(
            log_ratio=RATIOS[settings.ratio],
            surrogate=surrogate_of(settings),
            kl=KL_ESTIMATORS[settings.kl],
            beta=settings.beta,
            kl_cap_token=settings.cap_token,
            kl_cap_rollout=settings.cap_rollout,
            entropy_bonus=settings.entropy_bonus,
        )
        self.policy = [self._tensor(row.policy).requires_grad_() for row in self.rows]
        self.entropy = [self._tensor(row.entropy).requires_grad_() for row in self.rows]

    def _tensor(self, values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=self.dtype)

    def loss(self, part: list[int] | None = None) -> TokenTerms:
        """Of the rollouts with these numbers, all by default."""
        chosen = range(len(self.rows)) if part is None else part
        masks = [torch.tensor(self.rows[i].trainable, dtype=torch.bool) for i in chosen]
        counts = torch.tensor([int(mask.sum()) for mask in masks])

        def trained(tensors: list[torch.Tensor]) -> torch.Tensor:
            return torch.cat([tensor[mask] for tensor, mask in zip(tensors, masks, strict=True)])

        def each(values: list[float]) -> torch.Tensor:
            return self._tensor([values[i] for i in chosen]).repeat_interleave(counts)

        old = trained([self._tensor(self.rows[i].old) for i in chosen])
        correction = None
        if self.settings.cap is not None:
            sampler = trained([self._tensor(self.rows[i].sampler) for i in chosen])
            correction = sampler_correction(old, sampler, cap=self.settings.cap)
        return policy_loss(
            self.objective,
            policy_logprobs_M=trained([self.policy[i] for i in chosen]),
            old_logprobs_M=old,
            advantages_M=self._tensor([a for i in chosen for a in self.advantages[i]]),
            weights_M=each(self.weights),
            rollout_M=torch.arange(len(counts)).repeat_interleave(counts),
            rollouts=len(counts),
            correction_M=correction,
            reference_logprobs_M=trained([self._tensor(self.rows[i].reference) for i in chosen]),
            entropy_M=trained([self.entropy[i] for i in chosen]),
        )

    def gradients(self) -> list[list[float]]:
        """Of every policy log-prob, then of every entropy, by rollout; 0 where nothing flowed."""
        return [
            (torch.zeros_like(t) if t.grad is None else t.grad).tolist()
            for t in [*self.policy, *self.entropy]
        ]
