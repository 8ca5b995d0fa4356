"""Training on preference pairs, without sampling: what `method: dpo` reads."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.config.base import NonNegativeFloat, PositiveFloat, PositiveInt, Section, Text


class DpoConfig(Section):
    """Direct preference optimisation of a chosen over a rejected response to each prompt."""

    beta: PositiveFloat = Field(
        default=0.1, description="How strongly the policy is held to the reference; smaller moves further."
    )
    label_smoothing: Annotated[NonNegativeFloat, Field(lt=0.5)] = Field(
        default=0.0, description="Share of the pairs taken to be the wrong way round; 0 trusts all."
    )
    pairs_per_step: PositiveInt = Field(default=16, description="Pairs in one update.")
    max_response_tokens: PositiveInt | None = Field(
        default=None,
        description="Limit per response, its end included; null for what prompts.max_prompt_tokens leaves of the "
        "model's context, or half of the context. prompts.too_long says what becomes of a longer one.",
    )
    chosen: Text = Field(
        default="chosen", description="Column of the better response: text, or messages that end with it."
    )
    rejected: Text = Field(default="rejected", description="Column of the worse response, likewise.")
