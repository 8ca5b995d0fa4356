"""How weights are updated."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from groupwise.config.base import (
    Bool,
    Float,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Section,
)

Beta = Annotated[Float, Field(ge=0, lt=1)]


class TrainingConfig(Section):
    """Steps, optimiser and schedule. A step samples one batch and uses it for `updates_per_batch` passes."""

    steps: PositiveInt | None = Field(default=None, description="Batches to train on; or give epochs.")
    epochs: PositiveFloat | None = Field(default=None, description="Passes over the data; or give steps.")
    learning_rate: NonNegativeFloat = Field(default=1e-6, description="Peak of the schedule.")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        default="constant", description="After the warm-up."
    )
    warmup_steps: NonNegativeInt = Field(default=0, description="Steps of linear rise from 0.")
    adam_betas: tuple[Beta, Beta] = Field(default=(0.9, 0.999), description="AdamW's.")
    adam_eps: PositiveFloat = Field(default=1e-8, description="AdamW's.")
    weight_decay: NonNegativeFloat = Field(default=0.0, description="AdamW's, on matrices only.")
    max_grad_norm: PositiveFloat | None = Field(
        default=1.0, description="Gradients are scaled down to it; null: never."
    )
    updates_per_batch: PositiveInt = Field(default=1, description="Passes over each batch; 1 is on-policy.")
    mini_batches: PositiveInt = Field(default=1, description="Optimiser steps per pass, on disjoint parts.")
    micro_batch_tokens: PositiveInt = Field(
        default=8192,
        description="Tokens per forward pass, shared prompts counted once; bounds memory, changes nothing else.",
    )
    micro_batch_rollouts: PositiveInt | None = Field(
        default=None,
        description="Rollouts per forward pass at most; null: as many as micro_batch_tokens allow.",
    )
    gradient_checkpointing: Bool = Field(
        default=False,
        description="Compute each layer's activations again in the backward pass instead of keeping them: the same "
        "gradient, less memory, about a third more work.",
    )
    compile: Bool = Field(
        default=False,
        description="Train through torch.compile: half a minute at the start, pays on GPUs and in long runs.",
    )
    reuse_sampling: Bool = Field(
        default=True,
        description="Let what the linear layers and the head gave while sampling serve in the first update of a batch: "
        "the same gradient up to rounding, without the products of that forward pass. On a CPU in float32, "
        "without an adapter, when the batch fits micro_batch_tokens.",
    )
    max_bad_steps: PositiveInt = Field(
        default=3,
        description="Updates in a row skipped for a non-finite loss or gradient before the run ends.",
    )

    @model_validator(mode="after")
    def _one_length(self) -> TrainingConfig:
        if self.steps is not None and self.epochs is not None:
            raise ValueError("give steps or epochs, not both")
        return self
