"""Checkpoints: when they are written and which are kept."""

from __future__ import annotations

from pydantic import Field, field_validator

from groupwise.config.base import Bool, PositiveFloat, PositiveInt, Section, Text


class CheckpointConfig(Section):
    """What a run is resumed from. Writing one changes nothing in the run."""

    save: Bool = Field(default=True, description="Write them; without, a run that ends early is lost.")
    every_steps: PositiveInt | None = Field(default=500, description="After so many steps; null: never.")
    every_minutes: PositiveFloat | None = Field(
        default=10.0,
        description="When so much time has passed since the last, between two updates of a batch too; null: never.",
    )
    keep_last: PositiveInt = Field(default=2, description="So many of the latest stay.")
    best_metric: Text | None = Field(
        default="eval/pass@1",
        description="One more stays, that of the highest value of this held-out metric; null: none.",
    )
    grace_seconds: PositiveFloat = Field(
        default=30.0,
        description="After SIGTERM the run ends within this time, with a checkpoint if one can be written by then.",
    )

    @field_validator("best_metric")
    @classmethod
    def _held_out(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("eval/"):
            raise ValueError(
                f"{value!r} is not a held-out metric; name one of eval/..., for example eval/reward_mean, or null"
            )
        return value
