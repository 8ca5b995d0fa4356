"""Several ranks at one batch: who samples what, and a model divided among them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from groupwise.config.training import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.model.load import Policy
from groupwise.records import Prompt, Rollout
from groupwise.rollouts.engine import Engine, Sampling
from groupwise.training.distributed import Ranks
from groupwise.training.forward import Forward
from groupwise.training.inputs import Inputs
from groupwise.training.weights import Optimizer


class SharedEngine:
    """An engine at each rank, of which each samples whole groups of its own; every rank gets all of them.

    See `engine.Engine`. Since a rollout's random numbers follow from its prompt and index alone, the rollouts are those
    of one engine, but for the last bits of their log-probs.
    """

    def __init__(self, own: Engine, ranks: Ranks) -> None:
        """Take this rank's engine."""
        self.own = own
        self.ranks = ranks

    @property
    def same_as_trainer(self) -> bool:
        """See `engine.Engine`."""
        return self.own.same_as_trainer

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        group_size: int,
        seed: Sequence[int],
        greedy: bool = False,
    ) -> list[list[Rollout]]:
        """See `engine.Engine`."""
        mine = np.array_split(np.arange(len(prompts)), self.ranks.count)[self.ranks.number]
        sampled = self.own.generate(
            [prompts[i] for i in mine], sampling, group_size=group_size, seed=seed, greedy=greedy
        )
        return [group for of_rank in self.ranks.gather(sampled) for group in of_rank]

    def load_weights(self, version: int, source: Any) -> None:
        """See `engine.Engine`."""
        self.own.load_weights(version, source)

    def close(self) -> None:
        """See `engine.Engine`."""
        self.own.close()


def share_model(
    ranks: Ranks,
    inputs: Inputs,
    policy: Policy,
    prompts: Sequence[Prompt],
    forward: Forward,
    reference: Forward | None,
) -> list[str]:
    """Make sure that all ranks start from the same, and divide policy and reference where the strategy says so.

    Args:
        ranks: who train together.
        inputs: configuration and rewards.
        policy: as loaded.
        prompts: to train on.
        forward: scores with the policy.
        reference: scores with the reference; None without one.

    Returns:
        What people should know: what is really divided.

    Raises:
        ConfigError: some rank has something else, or all would compute on one GPU.
    """
    if ranks.alone:
        strategy = inputs.config.distributed.strategy
        if strategy != "ddp":
            return [
                f"distributed.strategy is {strategy}, but there is one process, so that nothing is divided"
            ]
        return []
    if inputs.config.model.device.startswith("cuda:"):
        raise ConfigError(
            f"model.device is {inputs.config.model.device}, which all {ranks.count} processes would compute on; set it "
            "to auto, and each takes one of its own"
        )
    ranks.same("settings", inputs.config.model_dump_json())
    ranks.same("prompts", _digest(prompts))
    ranks.same("weights", [float(p.detach().double().sum()) for p in policy.model.parameters()])
    said = []
    if ranks.strategy == "fsdp2":
        shards = forward.scorer.divide(ranks.mesh(policy.device))
        count = f"{shards.tensors} of {shards.tensors} parameters"
        said.append(f"fsdp2 is in force: {count} are DTensors, in {shards.layers} layers")
    own = reference is not None and reference.scorer is not forward.scorer
    if ranks.sharded and reference is not None and own and reference.device == policy.device:
        shards = reference.scorer.divide(ranks.mesh(policy.device))
        said.append(
            f"the reference is divided as well: {shards.tensors} of {shards.tensors} parameters are DTensors"
        )
    return said


def optimizer_of(policy: Policy, forward: Forward, config: TrainingConfig, notices: list[str]) -> Optimizer:
    """The optimiser of the policy's weights, which with zero3 are divided together with it.

    Args:
        policy: as `share_model` left it.
        forward: scores with the policy.
        config: its settings.
        notices: told what is really divided.
    """
    own = Optimizer(policy.model, config)
    if forward.ranks.strategy != "zero3":
        return own
    from groupwise.training.zero import ZeroOptimizer  # DeepSpeed, which is an extra

    shards = forward.scorer.divide_by_zero(own.adamw)
    count = f"{shards.tensors} of {shards.tensors} parameters"
    notices.append(f"zero3 is in force: {count} are divided by DeepSpeed")
    return ZeroOptimizer(own, shards)


def _digest(prompts: Sequence[Prompt]) -> str:
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(f"{prompt.id} {len(prompt.token_ids)}\n".encode())
        digest.update(prompt.token_ids.tobytes())
    return digest.hexdigest()
