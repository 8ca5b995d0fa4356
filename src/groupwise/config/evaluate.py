"""Held-out evaluation."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator

from groupwise.config.base import Bool, Float, NonNegativeFloat, PositiveInt, Section
from groupwise.config.rewards import ScorerConfig, named
from groupwise.config.rollout import check_temperature


class EvaluateConfig(Section):
    """What is measured on `prompts.held_out`."""

    every_steps: PositiveInt | None = Field(default=None, description="Also during training; null: never.")
    at_start: Bool = Field(default=True, description="Before the first update.")
    at_end: Bool = Field(default=True, description="After the last update.")
    rewards: tuple[ScorerConfig, ...] = Field(
        default=(),
        description="What scores held-out responses; empty for the training rewards. Others, such as the bare right "
        "answer or hidden tests, show what training rewards do not.",
    )
    temperature: NonNegativeFloat = Field(default=0.0, description="0 is greedy.")
    samples: PositiveInt = Field(
        default=1, description="Rollouts per prompt; pass@1 is their mean. 1 when greedy."
    )
    k: tuple[PositiveInt, ...] = Field(
        default=(1,), description="pass@k for each of these, from `samples` rollouts, without bias."
    )
    greedy: Bool = Field(
        default=False, description="Also a greedy response to each prompt, beside the sampled ones."
    )
    max_new_tokens: PositiveInt | None = Field(default=None, description="null for rollout.max_new_tokens.")
    pass_reward: Float = Field(
        default=1.0, description="A response passes when its total reward is at least this."
    )
    prompts: Annotated[PositiveInt | None, Field(description="Only the first this many; null: all.")] = None

    @field_validator("rewards", mode="before")
    @classmethod
    def _names_alone(cls, value: Any) -> Any:
        return named(value)

    @field_validator("rewards")
    @classmethod
    def _have_effect(cls, value: tuple[ScorerConfig, ...]) -> tuple[ScorerConfig, ...]:
        for each in value:
            each.in_training()
        return value

    @field_validator("temperature")
    @classmethod
    def _greedy_or_usual(cls, value: float) -> float:
        return value if value == 0 else check_temperature(value)

    @field_validator("k")
    @classmethod
    def _rising(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or len(set(value)) < len(value):
            raise ValueError("it holds each k once, and at least one")
        return tuple(sorted(value))
