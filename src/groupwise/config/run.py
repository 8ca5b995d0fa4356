"""The whole configuration: a section per room, and the checks that need more than one."""

from __future__ import annotations

import functools
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from groupwise.config import presets
from groupwise.config.base import Bool, NonNegativeInt, PathText, PositiveInt, Section
from groupwise.config.checkpoint import CheckpointConfig
from groupwise.config.critic import CriticConfig
from groupwise.config.distributed import DistributedConfig
from groupwise.config.dpo import DpoConfig
from groupwise.config.evaluate import EvaluateConfig
from groupwise.config.health import HealthConfig
from groupwise.config.memory import MemoryConfig
from groupwise.config.model import LoraConfig, ModelConfig, ReferenceConfig
from groupwise.config.objective import ADVANTAGES, ObjectiveConfig
from groupwise.config.prompts import PromptsConfig
from groupwise.config.rewards import RewardConfig, named
from groupwise.config.rollout import RolloutConfig, check_temperature
from groupwise.config.training import TrainingConfig
from groupwise.objective.estimator import Estimator
from groupwise.registry import find


class RunSettings(Section):
    """The run folder and what goes into it."""

    dir: PathText | None = Field(
        default=None,
        description="Run folder, relative to the working folder; null for a dated one under runs/.",
    )
    base: PathText | None = Field(
        default=None,
        description="Folder that data, reward files and models are relative to; null for the configuration's own. A "
        "run states it in the config.yaml that it writes.",
    )
    # Below 2^63, what torch's generators take.
    seed: Annotated[NonNegativeInt, Field(le=2**63 - 1)] = Field(
        default=0, description="Decides the order of prompts and every sample."
    )
    overwrite: Bool = Field(
        default=False, description="Replace a run of ours in that folder; its own files only."
    )
    sinks: tuple[Literal["terminal", "tensorboard", "wandb", "trackio"], ...] = Field(
        default=("terminal", "tensorboard"), description="Where metrics go beside metrics.jsonl."
    )
    save_rollouts: Bool = Field(default=True, description="Write every rollout to rollouts/ as Parquet.")
    samples_every_steps: PositiveInt | None = Field(
        default=50,
        description="Write a few groups of the batch to samples/ as Markdown after so many steps, and at the first; "
        "null: never. Evaluations always do.",
    )
    save_model: Bool = Field(default=True, description="Write the trained model to model/ at the end.")


class RunConfig(Section):
    """Everything a run is decided by. `groupwise explain` says in words what it computes."""

    method: Literal["rl", "dpo"] = Field(
        default="rl",
        description="`rl` trains on rollouts scored by rewards, by `objective`; `dpo` on preference pairs, by `dpo`.",
    )
    model: ModelConfig = Field(default=ModelConfig(), description="The policy.")
    lora: LoraConfig | None = Field(default=None, description="Train an adapter instead of all weights.")
    reference: ReferenceConfig | None = Field(default=None, description="Placement of the frozen reference.")
    memory: MemoryConfig = Field(
        default=MemoryConfig(), description="Memory saved on weights that are not trained."
    )
    prompts: PromptsConfig = Field(default=PromptsConfig(), description="The data.")
    rollout: RolloutConfig = Field(default=RolloutConfig(), description="Sampling.")
    rewards: tuple[RewardConfig, ...] = Field(
        default=(), description="What scores a rollout; summed by weight."
    )
    objective: ObjectiveConfig = Field(default=ObjectiveConfig(), description="What is optimised.")
    critic: CriticConfig = Field(
        default=CriticConfig(), description="The critic of advantages that ask for values, such as gae."
    )
    dpo: DpoConfig = Field(default=DpoConfig(), description="Preference pairs, with method dpo.")
    training: TrainingConfig = Field(default=TrainingConfig(), description="Updates.")
    distributed: DistributedConfig = Field(
        default=DistributedConfig(), description="How several processes share the work."
    )
    evaluate: EvaluateConfig = Field(default=EvaluateConfig(), description="Held-out evaluation.")
    checkpoint: CheckpointConfig = Field(
        default=CheckpointConfig(), description="What a run is resumed from."
    )
    health: HealthConfig = Field(default=HealthConfig(), description="Checks that watch the run.")
    run: RunSettings = Field(default=RunSettings(), description="The run folder.")

    @field_validator("rewards", mode="before")
    @classmethod
    def _names_alone(cls, value: Any) -> Any:
        return named(value)

    @field_validator("method", mode="before")
    @classmethod
    def _no_objective(cls, value: Any) -> Any:
        if isinstance(value, str) and value in presets.names():
            raise ValueError(f"{value} is an objective; write objective: {value} and leave method out")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> RunConfig:
        for check in (
            self._method,
            self._critic,
            self._group_size,
            self._overlong,
            self._dtype,
            self._reference,
            self._quantised,
            self._reference_memory,
            self._rewards,
            self._engine,
            self._old,
            self._teaching,
            self._lengths,
            self._evaluation,
            self._distributed,
            self._actions,
        ):
            check()
        return self

    def _method(self) -> None:
        """Nothing that is set may be without effect."""
        if self.method == "rl":
            idle = _changed(self, "dpo")
            if idle is not None:
                raise ValueError(
                    f"{idle} is set, but the method is rl, which has no pairs; set method to dpo, or remove it"
                )
            return
        idle = next((key for section in WITHOUT_DPO if (key := _changed(self, section)) is not None), None)
        if idle is not None:
            raise ValueError(
                f"{idle} is set, but the method is dpo, which trains on given pairs and samples and scores nothing; "
                "remove it"
            )
        if self.reference is not None:
            raise ValueError(
                "reference: with method dpo its log-probs are computed once, by the policy itself before its first "
                "update, so it has no dtype or device of its own; remove the reference section"
            )

    def _critic(self) -> None:
        name = self.objective.advantage.name
        idle = _changed(self, "critic")
        if (
            idle is None or self.method != "rl" or ":" in name
        ):  # an estimator of the user's is read with the data
            return
        if "values" not in Estimator(find(ADVANTAGES, name)).needs:
            raise ValueError(
                f"{idle} is set, but the advantage {name} asks for no values, so there is no critic; take the "
                "advantage gae, or remove it"
            )

    def _group_size(self) -> None:
        name = self.objective.advantage.name
        if ":" in name:  # an estimator of the user's may do with one
            return
        if self.rollout.group_size < 2 and Estimator(find(ADVANTAGES, name)).compares:
            raise ValueError(
                f"rollout.group_size is {self.rollout.group_size}, but the advantage {name} compares the rollouts of "
                "a prompt with each other and needs at least 2; 8 is a common choice"
            )

    def _overlong(self) -> None:
        buffer, limit = self.objective.overlong_buffer, self.rollout.max_new_tokens
        if self.objective.truncated == "penalise" and buffer is not None and buffer > limit:
            raise ValueError(
                f"objective.overlong_buffer is {buffer}, more than rollout.max_new_tokens, {limit}; the penalty would "
                "begin before the response"
            )

    def _dtype(self) -> None:
        if self.model.dtype == "bfloat16" and self.lora is None:
            raise ValueError(
                "model.dtype is bfloat16, in which most small updates round to nothing; use model.precision: "
                "bfloat16, which keeps the weights in float32, or add lora, whose adapter is float32 on any base"
            )

        if self.model.dtype == "bfloat16" and self.model.precision == "float32":
            raise ValueError(
                "model.precision is float32, but the weights are bfloat16 (model.dtype), and so are their products; "
                "remove one of the two"
            )

    def _reference(self) -> None:
        if self.reference is None:
            return
        if self.lora is not None:
            raise ValueError(
                "reference: with lora the reference is the policy's own weights with the adapter off, so it has no "
                "dtype or device of its own; remove the reference section"
            )
        if self.objective.kl.beta == 0:
            raise ValueError(
                "reference: objective.kl.beta is 0, so no reference is loaded; remove the reference section or give "
                "a beta above 0"
            )

    def _quantised(self) -> None:
        if self.memory.quantise is None:
            return
        where = f"memory.quantise is {self.memory.quantise}"
        if self.lora is None:
            raise ValueError(
                f"{where}, but 4-bit weights take no gradient; add lora, whose adapter is trained, or remove it"
            )
        if self.distributed.strategy != "ddp":
            raise ValueError(
                f"{where}, but 4-bit weights are not divided among processes; set distributed.strategy to ddp, or "
                "remove it"
            )
        if self.training.compile:
            raise ValueError(
                f"{where}, but training.compile does not see through 4-bit layers; turn one of the two off"
            )

    def _reference_memory(self) -> None:
        place = self.memory.reference
        if place == "auto":
            return
        where = f"memory.reference is {place}"
        if self.method == "dpo":
            raise ValueError(
                f"{where}, but with method dpo the policy itself scores as the reference before its first update; "
                "remove it"
            )
        if self.objective.kl.beta == 0:
            raise ValueError(
                f"{where}, but objective.kl.beta is 0, so no reference is loaded; remove it or give a beta above 0"
            )
        if place == "shared" and self.lora is None:
            raise ValueError(
                f"{where}, but without lora every weight is trained, so the reference needs a copy of its own; add "
                "lora, or set memory.reference to cpu"
            )
        if place == "cpu" and self.lora is not None:
            raise ValueError(
                f"{where}, but with lora the reference is the policy's own weights with the adapter off and takes no "
                "memory; remove it"
            )
        if place == "cpu" and self.reference is not None and self.reference.device is not None:
            raise ValueError(
                f"{where}, which brings the reference to the policy's device while it scores, but reference.device "
                f"{self.reference.device!r} has it compute there; remove one of the two"
            )
        if place == "cpu" and self.distributed.strategy != "ddp":
            raise ValueError(
                f"{where}, but distributed.strategy {self.distributed.strategy} divides the reference among the "
                "devices already; remove one of the two"
            )

    def _rewards(self) -> None:
        for key, rewards in (("rewards", self.rewards), ("evaluate.rewards", self.evaluate.rewards)):
            labels = [r.label for r in rewards if r.label is not None]
            twice = next((label for label in labels if labels.count(label) > 1), None)
            if twice is not None:
                raise ValueError(
                    f"{key}: the label {twice!r} is given twice; each part needs a name of its own"
                )

    def _engine(self) -> None:
        rollout = self.rollout
        if rollout.engine != "in_process":
            idle = next(
                (key for key in ("rollout.cache_megabytes", "rollout.pack_weights") if _changed(self, key)),
                None,
            )
            if idle is not None:
                raise ValueError(
                    f"{idle} is of the engine in_process, but rollout.engine is {rollout.engine}; remove it"
                )
        if rollout.engine == "vllm":
            if rollout.confidence is not None:
                raise ValueError(
                    "rollout.confidence draws a token again, which a server cannot do (rollout.engine is vllm); remove "
                    "it, or sample in_process"
                )
            if (
                rollout.vllm is not None
                and rollout.vllm.transfer in ("nccl", "gloo")
                and self.lora is not None
            ):
                raise ValueError(
                    f"rollout.vllm.transfer is {rollout.vllm.transfer}, which sends all weights, but lora is set (on "
                    "quantised weights too), and an adapter goes by its folder; set transfer to auto, or remove lora"
                )
        elif rollout.vllm is not None:
            raise ValueError(
                f"rollout.vllm is set, but rollout.engine is {rollout.engine}; set rollout.engine to vllm, or remove it"
            )
        if rollout.overlap and rollout.engine != "vllm":
            raise ValueError(
                f"rollout.overlap is 1, but the engine {rollout.engine} samples from the very weights that are being "
                "trained; set rollout.engine to vllm, or overlap to 0"
            )
        if rollout.overlap and self.objective.old_source == "sampler":
            raise ValueError(
                "rollout.overlap is 1, so that rollouts are of weights one step old, but objective.old_source is "
                "sampler, which takes them for new; set it to auto"
            )

    def _old(self) -> None:
        if self.objective.old_source == "sampler" and self.rollout.reshapes:
            raise ValueError(
                "objective.old_source is sampler, but top_p, top_k, min_p or confidence change what the sampler draws "
                "from; set old_source to auto, or keep the policy's own distribution"
            )

    def _teaching(self) -> None:
        if self.objective.teaching is None:
            return
        if self.objective.kl.place == "reward" and self.objective.kl.beta > 0:
            raise ValueError(
                "objective.teaching is set, but the KL acts in the reward, where it is of the answer as it was sampled "
                "and not of the text that is trained; set objective.kl.place to loss, or beta to 0"
            )
        name = self.objective.advantage.name
        if ":" not in name and "values" in Estimator(find(ADVANTAGES, name)).needs:
            raise ValueError(
                f"objective.teaching is set, but the advantage {name} has a critic, which expects nothing at tokens "
                "that were inserted; take an advantage without one"
            )

    def _lengths(self) -> None:
        rollouts = self.rollout.prompts_per_step * self.rollout.group_size
        if self.training.mini_batches > rollouts:
            raise ValueError(
                f"training.mini_batches is {self.training.mini_batches}, but a step has only "
                f"{self.rollout.prompts_per_step} prompts x {self.rollout.group_size} rollouts = {rollouts} rollouts; "
                f"set training.mini_batches to {rollouts} or less, or rollout.prompts_per_step to "
                f"{-(-self.training.mini_batches // self.rollout.group_size)} or more"
            )
        steps = self.training.steps
        if steps is not None and self.training.warmup_steps > steps:
            raise ValueError(
                f"training.warmup_steps is {self.training.warmup_steps}, more than training.steps, {steps}; "
                "the learning rate would never reach its value"
            )

    def _evaluation(self) -> None:
        if self.evaluate.samples > 1 and self.evaluate.temperature == 0:
            raise ValueError(
                f"evaluate.samples is {self.evaluate.samples}, but at temperature 0 all samples are the same; "
                "set evaluate.temperature above 0 or samples to 1"
            )
        if max(self.evaluate.k) > self.evaluate.samples:
            raise ValueError(
                f"evaluate.k asks for pass@{max(self.evaluate.k)}, which takes as many samples of each prompt, but "
                f"evaluate.samples is {self.evaluate.samples}; raise that, with a temperature above 0"
            )
        if self.evaluate.greedy and self.evaluate.temperature == 0:
            raise ValueError(
                "evaluate.greedy is set, but at temperature 0 every response is greedy; set evaluate.temperature above "
                "0, or remove it"
            )

    def _distributed(self) -> None:
        if self.distributed.strategy == "zero3" and self.lora is not None:
            raise ValueError(
                "distributed.strategy is zero3, which divides weights that are all trained, but lora is set; set it to "
                "fsdp2, or remove lora"
            )
        if self.distributed.strategy != "ddp" and self.training.compile:
            raise ValueError(
                "training.compile is on, but compiled layers do not bring divided weights together "
                f"(distributed.strategy is {self.distributed.strategy}); turn one of the two off"
            )

    def _actions(self) -> None:
        if self.health.actions and self.method == "dpo":
            raise ValueError(
                "health.actions is set, but with method dpo findings only warn or stop the run; remove it"
            )
        for name, action in self.health.actions.items():
            where = f"health.actions.{name}"
            if "beta" in action.factors and self.objective.kl.beta == 0:
                raise ValueError(
                    f"{where}.beta is set, but objective.kl.beta is 0, so no reference is loaded and there is nothing "
                    "to multiply; give objective.kl.beta a small value, or remove it"
                )
            hottest = self.rollout.temperature * action.temperature**action.times
            try:
                check_temperature(hottest)
            except ValueError:
                raise ValueError(
                    f"{where}.temperature is {action.temperature:g}, and {action.times} times make rollout.temperature "
                    f"{hottest:.3g}, where logits overflow or are all alike; give a factor closer to 1, or fewer times"
                ) from None
            if action.do == "rollback" and not (self.checkpoint.save and self.checkpoint.every_steps):
                key = "every_steps is null" if self.checkpoint.save else "save is false"
                raise ValueError(
                    f"{where} rolls back to a checkpoint, but checkpoint.{key}; set checkpoint.every_steps, for "
                    "example to 20"
                )


WITHOUT_DPO = (
    "rollout",
    "rewards",
    "objective",
    "critic",
    "training.updates_per_batch",
    "training.mini_batches",
    "prompts.curriculum",
    "prompts.columns.max_new_tokens",
    "evaluate.rewards",
    "evaluate.temperature",
    "evaluate.samples",
    "evaluate.k",
    "evaluate.greedy",
    "evaluate.max_new_tokens",
    "evaluate.pass_reward",
    "run.save_rollouts",
    "run.samples_every_steps",
)
"""Sections and settings that have no effect with method dpo."""


@functools.cache
def _defaults() -> RunConfig:
    return RunConfig.model_construct()


def _changed(config: RunConfig, key: str) -> str | None:
    """The first setting at or below a dotted key that differs from its default; None when none does."""
    node: Any = config
    plain: Any = _defaults()
    for part in key.split("."):
        node, plain = getattr(node, part), getattr(plain, part, None)  # of a section that is null by default
    if node == plain:
        return None
    if not (isinstance(node, Section) and isinstance(plain, Section)):
        return key
    fields = type(node).model_fields
    return next((found for name in fields if (found := _changed(config, f"{key}.{name}")) is not None), key)
