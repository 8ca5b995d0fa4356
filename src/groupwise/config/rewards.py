"""Which rewards score a rollout."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from groupwise.config.base import Float, Section, Text

SCORERS = "groupwise.rewards.scorers"


class RewardConfig(Section):
    """One reward: a built-in scorer or a function of yours."""

    name: Text = Field(description="A scorer's name, or module:function, or file.py:function.")
    weight: Float = Field(default=1.0, description="Its factor in the sum.")
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

    @field_validator("label")
    @classmethod
    def _readable(cls, label: str | None) -> str | None:
        fault = None if label is None else fault_of_label(label)
        if fault is not None:
            raise ValueError(f"it {fault}; a label is a name on one line, since metrics are called by it")
        return label

    @model_validator(mode="after")
    def _stands_in(self) -> RewardConfig:
        if (self.on_failure == "value") != (self.failure_value is not None):
            raise ValueError("failure_value goes with on_failure: value, and only with it")
        return self


def fault_of_label(label: str) -> str | None:
    """What keeps a text from being part of a metric's name, as a clause; None for nothing."""
    if not label.strip():
        return "is empty"
    if "/" in label:
        return f"has a slash ({label!r:.60})"
    return None if label.isprintable() else f"has characters that cannot be seen ({label!r:.60})"
