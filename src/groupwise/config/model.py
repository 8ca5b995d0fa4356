"""The policy, its adapter and its reference."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from groupwise.config.base import Bool, NonNegativeFloat, PathText, PositiveFloat, PositiveInt, Section, Text

DType = Literal["float32", "bfloat16", "float16"]


class ModelConfig(Section):
    """Which model is trained."""

    name: PathText = Field(
        default="smollm2-135m",
        description="`smollm2-135m` (embedded), `tiny` (random weights, to see that everything fits), a Hugging Face "
        "folder, a .gguf file or a hub id.",
    )
    revision: Text | None = Field(default=None, description="Hub revision.")
    tokenizer: PathText | None = Field(default=None, description="Another folder or id for the tokenizer.")
    chat_template: PathText | None = Field(
        default=None, description="A Jinja file to use in place of the tokenizer's."
    )
    pad_token: Text | None = Field(
        default=None,
        description="Written into the saved tokenizer, and must be in its vocabulary; training pads nothing.",
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="Of the weights; bfloat16 only below a LoRA adapter, which stays in float32.",
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto",
        description="Of the products in the layers, in training and sampling, over weights that keep their dtype; auto "
        "is bfloat16 for models above 50 million weights where the processor or GPU computes it faster.",
    )
    attention: Literal["auto", "sdpa", "flex"] = Field(
        default="auto",
        description="Kernel of training's packed tokens; auto is FlexAttention on CUDA with Triton, else SDPA.",
    )
    device: Text = Field(default="auto", description="auto, cpu, cuda, cuda:1, mps.")
    trust_remote_code: Bool = Field(
        default=False, description="Run code that comes with a model. Off for a reason."
    )


class LoraConfig(Section):
    """Train a low-rank adapter and leave the base as it is."""

    rank: PositiveInt = Field(default=16, description="Rank of the update.")
    alpha: PositiveFloat | None = Field(default=None, description="Scale is alpha / rank; null for 2 * rank.")
    dropout: NonNegativeFloat = Field(default=0.0, lt=1, description="On the adapter's input while training.")
    target_modules: tuple[Text, ...] | Literal["all-linear"] = Field(
        default="all-linear", description="Names of layers, or every linear layer but the head."
    )
    adapter: PathText | None = Field(
        default=None,
        description="A PEFT folder to start from; the reference is then the model with that adapter.",
    )


class ReferenceConfig(Section):
    """The frozen model that the KL is measured against. With LoRA it is the policy with the adapter off."""

    dtype: DType | None = Field(default=None, description="null for the policy's.")
    device: Text | None = Field(default=None, description="null for the policy's; cpu to save GPU memory.")
