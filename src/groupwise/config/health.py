"""Which health checks watch a run, and what they do."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from groupwise import registry
from groupwise.config.base import PositiveInt, Section, Text
from groupwise.config.choice import check_settings

CHECKS = "groupwise.health.checks"


class HealthConfig(Section):
    """Health checks: each finding is told once in the terminal and written to health.jsonl."""

    every_steps: PositiveInt | None = Field(
        default=1, description="The checks are made after so many steps; null: never."
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

    @model_validator(mode="after")
    def _known(self) -> HealthConfig:
        for name in self.add:
            if ":" not in name:
                raise ValueError(f"add: {name!r} is not of yours; write module:function or file.py:function")
        for key in ("off", "thresholds", "stop"):
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
        idle = next((name for name in (*self.stop, *self.thresholds) if name in self.off), None)
        if idle is not None:
            raise ValueError(
                f"{idle} is off, so that its thresholds or stop would do nothing; remove one of the two"
            )
        return self
