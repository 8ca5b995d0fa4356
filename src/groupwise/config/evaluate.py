"""Held-out evaluation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from groupwise.config.base import Bool, Float, NonNegativeFloat, PositiveInt, Section
from groupwise.config.rollout import check_temperature


class EvaluateConfig(Section):
    """What is measured on `prompts.held_out`."""

    every_steps: PositiveInt | None = Field(default=None, description="Also during training; null: never.")
    at_start: Bool = Field(default=True, description="Before the first update.")
    at_end: Bool = Field(default=True, description="After the last update.")
    temperature: NonNegativeFloat = Field(default=0.0, description="0 is greedy.")
    samples: PositiveInt = Field(
        default=1, description="Rollouts per prompt; pass@1 is their mean. 1 when greedy."
    )
    max_new_tokens: PositiveInt | None = Field(default=None, description="null for rollout.max_new_tokens.")
    pass_reward: Float = Field(
        default=1.0, description="A response passes when its total reward is at least this."
    )
    prompts: Annotated[PositiveInt | None, Field(description="Only the first this many; null: all.")] = None

    @field_validator("temperature")
    @classmethod
    def _greedy_or_usual(cls, value: float) -> float:
        return value if value == 0 else check_temperature(value)
