"""Several ranks at one batch: who samples what, and a model divided among them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from groupwise.errors import ConfigError
from groupwise.model.load import Policy
from groupwise.records import Prompt, Rollout
from groupwise.rollouts.engine import Engine, Sampling
from groupwise.training.distributed import Ranks
from groupwise.training.inputs import Inputs
from groupwise.training.step import Forward


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
        if inputs.config.distributed.strategy == "fsdp2":
            return ["distributed.strategy is fsdp2, but there is one process, so that nothing is divided"]
        return []
    if inputs.config.model.device.startswith("cuda:"):
        raise ConfigError(
            f"model.device is {inputs.config.model.device}, which all {ranks.count} processes would compute on; set it "
            "to auto, and each takes one of its own"
        )
    ranks.same("settings", inputs.config.model_dump_json())
    ranks.same("prompts", _digest(prompts))
    ranks.same("weights", [float(p.detach().double().sum()) for p in policy.model.parameters()])
    if not ranks.sharded:
        return []
    shards = forward.scorer.divide(ranks.mesh(policy.device))
    said = f"fsdp2 is in force: {shards.tensors} of {shards.tensors} parameters are DTensors, in {shards.layers} layers"
    if reference is not None and reference.scorer is not forward.scorer and reference.device == policy.device:
        reference.scorer.divide(ranks.mesh(policy.device))
        said += ", those of the reference as well"
    return [said]


def _digest(prompts: Sequence[Prompt]) -> str:
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(f"{prompt.id} {len(prompt.token_ids)}\n".encode())
        digest.update(prompt.token_ids.tobytes())
    return digest.hexdigest()
