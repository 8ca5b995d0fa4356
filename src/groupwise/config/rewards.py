"""Which rewards score a rollout."""

from __future__ import annotations

import itertools
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from groupwise.config.base import Float, NonNegativeInt, PositiveFloat, PositiveInt, Section, Text

SCORERS = "groupwise.rewards.scorers"


class GateConfig(Section):
    """A condition on another reward: no credit for style unless the answer is right."""

    reward: Text = Field(description="Label of the reward that decides.")
    at_least: Float = Field(
        default=1.0, description="The gate is open where that reward's own value is at least this."
    )
    otherwise: Float = Field(
        default=0.0, description="What counts in place of the gated value where it is closed."
    )


class ScorerConfig(Section):
    """One reward as it judges: a built-in scorer or a function of yours."""

    name: Text = Field(description="A scorer's name, or module:function, or file.py:function.")
    weight: Float = Field(default=1.0, description="Its factor in the sum; 0 to watch it only.")
    label: Text | None = Field(
        default=None, description="Its name in records and metrics; the function's by default."
    )
    settings: dict[str, Any] = Field(default={}, description="The function's keyword-only arguments.")
    columns: dict[str, Text] = Field(
        default={}, description="Argument name to data column, where these differ."
    )
    on_failure: Literal["fail", "drop", "value"] = Field(
        default="fail",
        description="When it raises or gives NaN: end the run, leave the rollout out, or use failure_value.",
    )
    failure_value: Float | None = Field(default=None, description="What stands in under on_failure: value.")
    timeout_seconds: PositiveFloat | None = Field(
        default=None,
        description="Longest that one call may take; then its process is ended and it has failed. null for no limit.",
    )
    workers: PositiveInt | None = Field(
        default=None,
        description="Worker processes to run it in, each with a part of the batch; null for none, or one where "
        "timeout_seconds is set.",
    )
    gate: GateConfig | None = Field(
        default=None, description="Count it only where another reward is high enough."
    )

    @field_validator("label")
    @classmethod
    def _readable(cls, label: str | None) -> str | None:
        fault = None if label is None else fault_of_label(label)
        if fault is not None:
            raise ValueError(f"it {fault}; a label is a name on one line, since metrics are called by it")
        return label

    @model_validator(mode="after")
    def _stands_in(self) -> ScorerConfig:
        if (self.on_failure == "value") != (self.failure_value is not None):
            raise ValueError("failure_value goes with on_failure: value, and only with it")
        return self

    def in_training(self) -> RewardConfig:
        """The same reward as an entry of the training rewards, what concerns training alone at its default."""
        return RewardConfig.model_validate(self.model_dump())


class RewardConfig(ScorerConfig):
    """One reward as it is trained on: what it judges by, and how that becomes an advantage."""

    normalise: Literal["none", "group", "batch"] = Field(
        default="none",
        description="Count its distance from the mean of the group or batch, in standard deviations, when training.",
    )
    smoothing: Annotated[Float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="Weight of earlier steps in the statistics that normalise; 0 for this step's alone.",
    )
    schedule: tuple[tuple[NonNegativeInt, Float], ...] = Field(
        default=(),
        description="Points [finished steps, factor] on a line that multiplies the weight; constant outside them.",
    )

    @field_validator("schedule")
    @classmethod
    def _rising(cls, points: tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
        steps = [step for step, _ in points]
        if any(later <= earlier for earlier, later in itertools.pairwise(steps)):
            raise ValueError(
                f"its steps are {steps}, but each point must be of a later step than the one before"
            )
        return points

    @model_validator(mode="after")
    def _has_effect(self) -> RewardConfig:
        if self.smoothing and self.normalise == "none":
            raise ValueError(
                "smoothing is of the statistics that normalise, so it needs normalise: group or normalise: batch"
            )
        if self.weight == 0:
            idle = [
                key
                for key, given in (
                    ("gate", self.gate is not None),
                    ("normalise", self.normalise != "none"),
                    ("schedule", bool(self.schedule)),
                )
                if given
            ]
            if idle:
                raise ValueError(
                    f"its weight is 0, so it is only watched and {' and '.join(idle)} would do nothing; remove "
                    f"{'it' if len(idle) == 1 else 'them'} or give a weight"
                )
        return self


def fault_of_label(label: str) -> str | None:
    """What keeps a text from being part of a metric's name, as a clause; None for nothing."""
    if not label.strip():
        return "is empty"
    if "/" in label:
        return f"has a slash ({label!r:.60})"
    return None if label.isprintable() else f"has characters that cannot be seen ({label!r:.60})"


def named(value: Any) -> Any:
    """Entries of a list of rewards as mappings, where some are given by their name alone."""
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list | tuple):
        return [{"name": item} if isinstance(item, str) else item for item in value]
    return value
