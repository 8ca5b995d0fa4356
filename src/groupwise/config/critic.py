"""The critic of estimators that ask for values."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from groupwise.config.base import NonNegativeFloat, NonNegativeInt, PositiveFloat, Section


class CriticConfig(Section):
    """What expects the reward still to come, at each token. Only an advantage that asks for values has one."""

    backbone: Literal["own", "policy"] = Field(
        default="own",
        description="What reads the tokens: a copy of the policy, trained for this alone; or the policy itself, with "
        "the value head beside it and no gradient sent back.",
    )
    learning_rate: NonNegativeFloat = Field(
        default=1e-5, description="Peak of the critic's own rate, on the schedule of training.schedule."
    )
    clip: PositiveFloat | None = Field(
        default=0.2,
        description="How far a value may move within a batch before its loss is held, in units of reward; null: no "
        "bound.",
    )
    warmup_steps: NonNegativeInt = Field(
        default=0, description="First steps in which the critic alone learns and the policy stays as it is."
    )
