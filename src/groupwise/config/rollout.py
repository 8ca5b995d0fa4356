"""How rollouts are sampled."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from groupwise.config.base import (
    Bool,
    Float,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Section,
    Text,
)
from groupwise.config.serving import VllmConfig

ENGINES = ("in_process", "vllm")
"""Engines of the package."""

_COLDEST, _HOTTEST = 1e-3, 1e3


def check_temperature(value: float) -> float:
    """The same value. Beyond these limits float32 logits divided by it overflow or are all alike.

    Raises:
        ValueError: it is outside the limits.
    """
    if not _COLDEST <= value <= _HOTTEST:
        raise ValueError(
            f"{value!r} should be from {_COLDEST:g} to {_HOTTEST:g}: logits are divided by it, and beyond that they "
            "overflow or are all alike; 1 is usual"
        )
    return value


class TemperatureSchedule(Section):
    """A change of the temperature along a line."""

    final: Annotated[Float, AfterValidator(check_temperature)] = Field(
        default=0.7, description="Where it ends, and stays."
    )
    steps: PositiveInt = Field(default=1000, description="Steps from rollout.temperature to there.")


class ConfidenceConfig(Section):
    """Per-token confidence resampling: a token drawn with a probability above the threshold is drawn again."""

    threshold: Annotated[Float, Field(gt=0, lt=1)] = Field(
        default=0.7,
        description="Probability (after temperature and truncation) above which a token is redrawn.",
    )
    redraws: PositiveInt = Field(
        default=1,
        description="How often at most for one token; the last draw stands, whatever its probability.",
    )


class RolloutConfig(Section):
    """Sampling. Only these settings apply: a model folder's own generation defaults are not used."""

    engine: Text = Field(
        default="in_process",
        description="What samples: `in_process`, the policy itself; `vllm`, a server that is given the weights after "
        "each update; or your own by module:function or file.py:function.",
    )
    vllm: VllmConfig | None = Field(
        default=None, description="The server of engine vllm; null: the run starts one."
    )
    overlap: Annotated[NonNegativeInt, Field(le=1)] = Field(
        default=0,
        description="Batches sampled ahead: 1 samples the next batch while this one is trained, with weights that are "
        "one step old, which importance weights make up for; 0: one after the other.",
    )
    prompts_per_step: PositiveInt = Field(default=8, description="Prompts in a batch.")
    group_size: PositiveInt = Field(default=8, description="Rollouts per prompt.")
    max_new_tokens: PositiveInt = Field(default=256, description="Limit per response, in tokens.")
    temperature: Annotated[Float, AfterValidator(check_temperature)] = Field(
        default=1.0, description="Logits are divided by it, in training as well."
    )
    temperature_schedule: TemperatureSchedule | None = Field(
        default=None, description="How the temperature changes; null: it does not."
    )
    top_p: Annotated[Float, Field(gt=0, le=1)] = Field(
        default=1.0, description="Nucleus mass kept; 1 keeps all."
    )
    top_k: PositiveInt | None = Field(default=None, description="Most likely tokens kept; null keeps all.")
    min_p: Annotated[NonNegativeFloat, Field(le=1)] = Field(
        default=0.0,
        description="Tokens below this share of the most likely one's probability are cut; 0 keeps all.",
    )
    confidence: ConfidenceConfig | None = Field(
        default=None, description="Draw a token again when the model is too sure of it; null: never."
    )
    max_redraws: NonNegativeInt = Field(
        default=0,
        description="How often, within a step, groups whose rewards are all equal are replaced by groups of the next "
        "prompts (dynamic sampling); 0: they stay.",
    )
    stop_tokens: tuple[Text, ...] = Field(
        default=(),
        description="Tokens that end a response, beside the model's own; each must be in the vocabulary.",
    )
    pack_weights: Bool = Field(
        default=True,
        description="Sample with a copy of the weights laid out for the processor (CPU, float32): faster, for the "
        "weights' memory once more.",
    )
    cache_megabytes: PositiveInt = Field(
        default=2048,
        description="Memory for keys and values while sampling; prompts are sampled in chunks that fit.",
    )

    @field_validator("engine")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in ENGINES and ":" not in value:
            raise ValueError(
                f"no engine is called {value!r}; there are {', '.join(ENGINES)}, or name your own as module:function "
                "or file.py:function"
            )
        return value

    @property
    def reshapes(self) -> bool:
        """True when tokens are drawn from another distribution than the policy's own."""
        return self.top_p < 1 or self.top_k is not None or self.min_p > 0 or self.confidence is not None
