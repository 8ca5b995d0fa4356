"""Which health checks watch a run, and what they do."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from groupwise import registry
from groupwise.config.base import Bool, NonNegativeInt, PositiveFloat, PositiveInt, Section, Text
from groupwise.config.choice import check_settings

CHECKS = "groupwise.health.checks"

FACTORS: dict[str, str] = {
    "learning_rate": "training.learning_rate",
    "beta": "objective.kl.beta",
    "temperature": "rollout.temperature",
}
"""What an action may multiply, to the setting that the result stands for."""

_WAIT = 10
Factor = Annotated[PositiveFloat, Field(ge=0.01, le=100)]


class ActionConfig(Section):
    """What a check's findings do to the run, beside being told. Every time multiplies what is in force once more."""

    do: Literal["adjust", "rollback"] = Field(
        description="`adjust` changes settings and goes on; `rollback` first goes back to the last healthy checkpoint.",
    )
    learning_rate: Factor = Field(default=1.0, description="Multiplies the learning rate of the policy.")
    beta: Factor = Field(default=1.0, description="Multiplies the KL coefficient that its controller gives.")
    temperature: Factor = Field(
        default=1.0, description="Multiplies the temperature that its schedule gives."
    )
    severity: Literal["warning", "critical"] | None = Field(
        default=None,
        description="From which severity on; null: warning for adjust, critical for rollback.",
    )
    times: PositiveInt = Field(default=3, description="So often in a run at most.")
    wait_steps: NonNegativeInt = Field(
        default=_WAIT,
        description="Steps that an adjustment is given to work before the next; a rollback does not wait.",
    )
    revert: Bool = Field(
        default=False, description="Take the adjustments back when the check has no finding any more."
    )
    then: Literal["warn", "stop"] = Field(
        default="warn", description="What the finding does when the action was taken `times` times."
    )

    @property
    def factors(self) -> dict[str, float]:
        """Those that are not 1, by the names of `FACTORS`."""
        return {name: value for name in FACTORS if (value := float(getattr(self, name))) != 1}

    @model_validator(mode="after")
    def _acts(self) -> ActionConfig:
        if not self.factors:
            raise ValueError(
                f"{self.do} changes no setting, so that the same would happen again; give {', '.join(FACTORS)} a factor"
            )
        if self.do == "rollback" and (self.revert or self.wait_steps != _WAIT):
            raise ValueError("revert and wait_steps are of adjust, and do nothing with rollback; remove them")
        return self


class HealthConfig(Section):
    """Health checks: each finding is told once in the terminal and written to health.jsonl."""

    every_steps: PositiveInt | None = Field(
        default=1, description="The checks are made after so many steps; null: never."
    )
    probe_steps: PositiveInt | None = Field(
        default=500,
        description="At step 1 and after so many steps the reference's log-probs of fixed tokens are compared with the "
        "first ones; null: never.",
    )
    off: tuple[Text, ...] = Field(default=(), description="Checks that are not made.")
    add: tuple[Text, ...] = Field(
        default=(), description="Checks of your own, as module:function or file.py:function."
    )
    thresholds: dict[Text, dict[str, Any]] = Field(
        default={}, description="By the name of a check: its settings that differ from their defaults."
    )
    stop: tuple[Text, ...] = Field(
        default=(), description="Checks whose critical findings end the run, with a checkpoint."
    )
    actions: dict[Text, ActionConfig] = Field(
        default={}, description="By the name of a check: what its findings do to the run, beside being told."
    )

    @model_validator(mode="after")
    def _known(self) -> HealthConfig:
        for name in self.add:
            if ":" not in name:
                raise ValueError(f"add: {name!r} is not of yours; write module:function or file.py:function")
        for key in ("off", "thresholds", "stop", "actions"):
            for name in getattr(self, key):
                if name in self.add:
                    continue
                known = registry.names(CHECKS)
                if name not in known:
                    near = registry.nearest(name, known)
                    hint = f"did you mean {near!r}? " if near else ""
                    raise ValueError(
                        f"{key}: no check is called {name!r}: {hint}there are {', '.join(known)}"
                    )
        for name, given in self.thresholds.items():
            if name not in self.add:
                try:
                    check_settings(registry.find(CHECKS, name), given)
                except ValueError as error:
                    raise ValueError(f"thresholds.{name}: {error}") from None
        idle = next(
            (name for name in (*self.stop, *self.thresholds, *self.actions) if name in self.off), None
        )
        if idle is not None:
            raise ValueError(
                f"{idle} is off, so that its thresholds, stop or action would do nothing; remove one of the two"
            )
        twice = next((name for name in self.actions if name in self.stop), None)
        if twice is not None:
            raise ValueError(
                f"{twice} stands in stop and in actions; keep one (an action may end the run with then: stop)"
            )
        if self.actions and self.every_steps is None:
            raise ValueError("actions: every_steps is null, so that no check is made that could act")
        return self
