"""What the formulas of memory and time ask of a configuration, resolved for a device and a layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from groupwise.config import RunConfig
from groupwise.config.memory import MemoryConfig
from groupwise.config.model import LoraConfig
from groupwise.config.objective import ADVANTAGES
from groupwise.errors import ConfigError
from groupwise.objective.estimator import Estimator
from groupwise.registry import find
from groupwise.workbench.planning.devices import Device, Layout
from groupwise.workbench.planning.shapes import Shape

PROMPT_TOKENS = 256
"""Taken for the longest prompt where `prompts.max_prompt_tokens` does not bound it."""
_LARGE = 50_000_000  # weights from which `model.precision: auto` takes bfloat16, see model/precision.py
_PACKING_PAYS_FROM = 10  # new tokens from which the in-process engine lays weights out


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One forward pass with gradient: responses of one length behind prompts of one length."""

    prompts: int
    """Computed once each."""
    responses: int
    """Behind them."""
    prompt_tokens: int
    """Of each prompt, P."""
    new_tokens: int
    """Of each response, T."""

    @property
    def of_prompts(self) -> int:
        """Tokens of the prompts."""
        return self.prompts * self.prompt_tokens

    @property
    def of_responses(self) -> int:
        """Tokens of the responses that the layers compute: the last of each is an input to nothing."""
        return self.responses * (self.new_tokens - 1)

    @property
    def tokens(self) -> int:
        """All tokens that the layers compute, S."""
        return self.of_prompts + self.of_responses

    @property
    def predictions(self) -> int:
        """Tokens that are predicted, M."""
        return self.responses * self.new_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A configuration on a device, as the formulas need it. Sizes are those of one process."""

    shape: Shape
    """The model."""
    kind: Literal["cuda", "cpu"]
    """What computes."""
    processes: int
    """Devices that train together, n."""
    sharded: bool
    """Weights, gradients and optimiser are divided among them."""
    weight_bytes: int
    """Of a weight as it is held, and of the residual stream: 4, or 2 in bfloat16."""
    rounded: bool
    """Products take bfloat16 copies of float32 tensors (autocast)."""
    lora: LoraConfig | None
    """The adapter; None when all weights are trained."""
    quantise: MemoryConfig | None
    """How the frozen layers are quantised; None when they are not."""
    reference: Literal["none", "shared", "here", "resting", "elsewhere"]
    """Where the frozen reference is: not loaded, the policy's own weights, on this device, brought to it, not on it."""
    reference_bytes: int
    """Of a weight of the reference."""
    critic: bool
    """A critic with a backbone of its own is trained beside the policy."""
    flex: bool
    """Training attends by FlexAttention."""
    checkpointing: bool
    """Activations are computed again in the backward pass."""
    prompts: int
    """In a batch."""
    group: int
    """Rollouts of a prompt."""
    prompt_tokens: int
    """Longest prompt."""
    new_tokens: int
    """Longest response."""
    micro_tokens: int
    """Most tokens of a forward pass."""
    micro_rollouts: int | None
    """Most rollouts of one."""
    mini_batches: int
    """Optimiser steps of a pass over the batch."""
    passes_over_batch: int
    """Passes over each batch."""
    trainer_scores: bool
    """The trainer computes the old log-probs before the first of several updates."""
    cache_bytes: int
    """Budget for keys and values while sampling."""
    laid_out: bool
    """Sampling computes with a copy of the weights laid out for the processor."""
    served: bool
    """A server on devices of its own samples (rollout.engine vllm)."""
    overlap: int
    """Updates by which it may be behind."""
    reused: bool
    """What the layers gave while sampling is kept for the training pass, where the batch fits one."""
    masses: bool
    """So are the exponentials of the head's logits."""

    @property
    def rollouts(self) -> int:
        """In a batch, over all processes."""
        return self.prompts * self.group

    @property
    def share(self) -> int:
        """Prompts of a batch that one process samples and trains on, at most."""
        return -(-self.prompts // self.processes)

    def passes(self) -> list[Pass]:
        """The forward passes of one optimiser step of one process, as `training.batch.split` divides rows."""
        left = -(-self.share * self.group // self.mini_batches)
        of_group, found = 0, []
        responses = prompts = held = 0
        for _ in range(left):
            new_prompt = responses == 0 or of_group == 0
            more = self.new_tokens + (self.prompt_tokens if new_prompt else 0)
            if responses and (held + more > self.micro_tokens or responses == self.micro_rollouts):
                found.append(self._pass(prompts, responses))
                responses = prompts = held = 0
                more, new_prompt = self.new_tokens + self.prompt_tokens, True
            responses, prompts, held = responses + 1, prompts + new_prompt, held + more
            of_group = (of_group + 1) % self.group
        return [*found, self._pass(prompts, responses)]

    def _pass(self, prompts: int, responses: int) -> Pass:
        return Pass(
            prompts=prompts,
            responses=responses,
            prompt_tokens=self.prompt_tokens,
            new_tokens=self.new_tokens,
        )

    def chunks(self) -> Iterator[Pass]:
        """What one process samples at a time, within the budget for keys and values."""
        budget = self.cache_bytes // self.key_value_bytes
        of_group = self.prompt_tokens + self.group * self.new_tokens
        whole = max(1, budget // of_group)
        if budget >= of_group:
            left = self.share
            while left:
                prompts = min(whole, left)
                yield self._pass(prompts, prompts * self.group)
                left -= prompts
        else:
            rows = max(1, (budget - self.prompt_tokens) // self.new_tokens)
            for _ in range(self.share):
                left = self.group
                while left:
                    yield self._pass(1, min(rows, left))
                    left -= min(rows, left)

    @property
    def key_value_bytes(self) -> int:
        """Keys and values of a token in all layers: 2 K L, in the layers' own precision."""
        size = 2 if self.rounded or self.weight_bytes == 2 else 4
        return 2 * self.shape.key_width * self.shape.layers * size


def setting_of(
    config: RunConfig,
    shape: Shape,
    device: Device,
    layout: Layout,
    *,
    prompt_tokens: int | None = None,
    new_tokens: int | None = None,
) -> Setting:
    """Resolve what is automatic as training would on that device.

    Args:
        config: the configuration.
        shape: of its model.
        device: what each process computes on.
        layout: how many there are.
        prompt_tokens: longest prompt; `prompts.max_prompt_tokens` by default, else `PROMPT_TOKENS`.
        new_tokens: of each response; `rollout.max_new_tokens` by default, which is the most there can be.

    Raises:
        ConfigError: the method trains on no rollouts, or a prompt and its response are longer than the model's context.
    """
    if config.method != "rl":
        raise ConfigError("plan is of training on rollouts (method: rl); method is dpo, which samples none")
    asked = prompt_tokens or config.prompts.max_prompt_tokens or PROMPT_TOKENS
    answered = new_tokens or config.rollout.max_new_tokens
    if asked + answered > shape.context:
        raise ConfigError(
            f"prompts of {asked} tokens with responses of {answered} exceed the context of {shape.name}, "
            f"{shape.context}; lower rollout.max_new_tokens or prompts.max_prompt_tokens"
        )
    if not shape.adapted(config.lora) if config.lora is not None else False:
        raise ConfigError(
            f"lora.target_modules: no layer of {shape.name} is called so; its layers are "
            f"{', '.join(each.name for each in shape.linears)}"
        )
    training, held = config.training, 2 if config.model.dtype == "bfloat16" else 4
    half = device.bfloat16_flops is not None
    wanted = config.model.precision
    rounded = held == 4 and (wanted == "bfloat16" or (wanted == "auto" and shape.weights >= _LARGE and half))
    cpu = device.kind == "cpu"
    served = _served(config)
    place, size = _reference(config, held, device)
    plain = config.lora is None and not rounded and held == 4
    return Setting(
        shape=shape,
        kind=device.kind,
        processes=layout.processes,
        sharded=config.distributed.strategy != "ddp" and layout.processes > 1,
        weight_bytes=held,
        rounded=rounded,
        lora=config.lora,
        quantise=None if config.memory.quantise is None else config.memory,
        reference=place,
        reference_bytes=size,
        critic=_has_critic(config),
        flex=config.model.attention != "sdpa" and not cpu,
        checkpointing=training.gradient_checkpointing,
        prompts=config.rollout.prompts_per_step,
        group=config.rollout.group_size,
        prompt_tokens=asked,
        new_tokens=answered,
        micro_tokens=training.micro_batch_tokens,
        micro_rollouts=training.micro_batch_rollouts,
        mini_batches=training.mini_batches,
        passes_over_batch=training.updates_per_batch,
        trainer_scores=_trainer_scores(config),
        cache_bytes=config.rollout.cache_megabytes * 2**20,
        laid_out=cpu and config.rollout.pack_weights and held == 4 and answered >= _PACKING_PAYS_FROM,
        served=served,
        overlap=config.rollout.overlap,
        reused=cpu
        and plain
        and not served
        and training.reuse_sampling
        and not (training.compile or training.gradient_checkpointing),
        masses=not config.objective.entropy_bonus,
    )


def _served(config: RunConfig) -> bool:
    """A server samples. Nothing can be said of an engine of the user's."""
    if ":" in config.rollout.engine:
        raise ConfigError(
            f"rollout.engine is {config.rollout.engine}, of whose memory and speed nothing is known; give "
            "rollout.engine=in_process to plan without it"
        )
    return config.rollout.engine == "vllm"


def _trainer_scores(config: RunConfig) -> bool:
    """The old log-probs are the trainer's, and several updates need them as they were before the first."""
    source, rollout = config.objective.old_source, config.rollout
    own = source == "trainer" or (source == "auto" and (rollout.engine != "in_process" or rollout.reshapes))
    return own and config.training.updates_per_batch * config.training.mini_batches > 1


def _reference(
    config: RunConfig, held: int, device: Device
) -> tuple[Literal["none", "shared", "here", "resting", "elsewhere"], int]:
    """Where it is, and the bytes of one of its weights."""
    if config.objective.kl.beta == 0:
        return "none", 0
    if config.lora is not None:
        return "shared", 0
    given = config.reference
    dtype = None if given is None else given.dtype
    size = held if dtype is None else 4 if dtype == "float32" else 2
    if config.memory.reference == "cpu":
        return ("here" if device.kind == "cpu" else "resting"), size
    if given is not None and given.device is not None and not given.device.startswith(device.kind):
        return ("here" if given.device == "auto" else "elsewhere"), size
    return "here", size


def _has_critic(config: RunConfig) -> bool:
    name = config.objective.advantage.name
    if ":" in name:
        return False
    return "values" in Estimator(find(ADVANTAGES, name)).needs and config.critic.backbone == "own"
