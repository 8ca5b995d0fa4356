"""What changes from step to step by rule: the KL coefficient and the temperature, with their state for checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from groupwise.config.rollout import RolloutConfig
from groupwise.errors import CheckpointError, TrainingError
from groupwise.health.metric import Metric


class KLController:
    """Holds beta and what it was last steered by; the rule itself is a function of `objective/kl_controllers`."""

    def __init__(self, control: Callable[..., Any], start: float) -> None:
        """Begin with no measurement.

        Args:
            control: beta, start, step and the KL per token and per rollout of the step before, to the next beta.
            start: `objective.kl.beta`.
        """
        self.control = control
        self.start = start
        self.given = start
        self.kl_token = self.kl_rollout = math.nan
        self.factor = 1.0

    @property
    def beta(self) -> float:
        """The coefficient in force: what the rule gave, times the factor."""
        return self.given * self.factor

    def begin(self, step: int, *, factor: float = 1.0) -> float:
        """Beta for a step, 0 for the first.

        Args:
            step: of the run.
            factor: of the actions; the rule does not know of it.

        Raises:
            TrainingError: a controller of the user's gave something that beta cannot be.
        """
        if self.start > 0:
            beta = self.control(self.given, self.start, step, self.kl_token, self.kl_rollout)
            if not isinstance(beta, int | float) or not math.isfinite(beta) or beta < 0:
                raise TrainingError(
                    f"the KL controller gave {beta!r} for step {step + 1}; beta is 0 or above"
                )
            self.given = float(beta)
        self.factor = factor
        return self.beta

    def end(self, metrics: Mapping[str, Metric]) -> None:
        """Take the KL that a step measured; what was not measured leaves the controller without a word on it."""
        token, rollout = metrics.get("kl/token_mean"), metrics.get("kl/rollout_mean")
        self.kl_token = math.nan if token is None else token.value  # that of an empty mean is NaN too
        self.kl_rollout = math.nan if rollout is None else rollout.value

    def state(self) -> dict[str, float]:
        """All that the next beta depends on."""
        return {
            "beta": self.given,
            "factor": self.factor,
            "kl_token": self.kl_token,
            "kl_rollout": self.kl_rollout,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`.

        Raises:
            CheckpointError: it is not a state of a KL controller.
        """
        held = {
            name: _number(state, name, "the KL controller")
            for name in ("beta", "factor", "kl_token", "kl_rollout")
        }
        self.given, self.factor = held["beta"], held["factor"]
        self.kl_token, self.kl_rollout = held["kl_token"], held["kl_rollout"]


class Temperature:
    """The sampling temperature in force, which divides the logits in training as well."""

    def __init__(self, config: RolloutConfig) -> None:
        """Begin at `rollout.temperature`."""
        self.config = config
        self.value = config.temperature

    def begin(self, step: int, *, factor: float = 1.0) -> float:
        """Take the temperature of a step; see `at`."""
        self.value = self.at(step, factor=factor)
        return self.value

    def at(self, step: int, *, factor: float = 1.0) -> float:
        """The temperature of a step, 0 for the first: along a line to `final` at step `steps`, then constant.

        Args:
            step: of the run.
            factor: of the actions, on what the schedule gives.
        """
        schedule, value = self.config.temperature_schedule, self.config.temperature
        if schedule is not None:
            value += (schedule.final - value) * min(step / schedule.steps, 1.0)
        return value * factor

    def state(self) -> dict[str, float]:
        """The value in force."""
        return {"value": self.value}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`.

        Raises:
            CheckpointError: it is not the state of a temperature.
        """
        self.value = _number(state, "value", "the temperature")


def _number(state: Mapping[str, Any], name: str, whose: str) -> float:
    value = state.get(name) if isinstance(state, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CheckpointError(
            f"the state of {whose} has {value!r} for {name!r}; the checkpoint is of another version"
        )
    return float(value)
