"""What weights that are not trained cost in memory."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from groupwise.config.base import Bool, Section


class MemoryConfig(Section):
    """Memory against time, or against exactness. `groupwise plan` says what each switch saves."""

    quantise: Literal["nf4", "fp4"] | None = Field(
        default=None,
        description="Hold the frozen layers below a LoRA adapter in 4 bit (QLoRA), by the extra `quant`; null: as they "
        "are.",
    )
    quantise_scales: Bool = Field(
        default=True,
        description="Quantise the scales of the 4-bit blocks as well: 4.13 bits a weight in place of 4.5.",
    )
    reference: Literal["auto", "cpu", "shared"] = Field(
        default="auto",
        description="The frozen reference: `cpu` keeps it in the processor's memory and brings it to the device while "
        "it scores; `shared` wants it to be the policy's own weights with the adapter off, which takes lora; auto is "
        "shared with lora, else a copy on the device.",
    )

    @model_validator(mode="after")
    def _has_effect(self) -> MemoryConfig:
        if self.quantise is None and not self.quantise_scales:
            raise ValueError(
                "quantise_scales is set, but quantise is null, so there are no scales; set quantise, or remove it"
            )
        return self
