"""Gradient checkpointing: a layer's activations are computed again in the backward pass instead of kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupwise.errors import ConfigError

if TYPE_CHECKING:
    from groupwise.model.load import Policy


def checkpoint_layers(policy: Policy) -> None:
    """Keep only each layer's input for the backward pass (Chen et al. 2016, arXiv:1604.06174), through transformers.

    Gradients are the same, bit for bit; the forward pass of the layers is computed twice.

    Raises:
        ConfigError: the model's layers cannot do it.
    """
    model = policy.model.get_base_model() if policy.lora else policy.model
    if not model.supports_gradient_checkpointing:
        raise ConfigError(
            f"training.gradient_checkpointing is on, but {type(model).__name__} does not support it; leave it off and "
            "lower training.micro_batch_tokens to save memory"
        )
    kwargs = {"use_reentrant": False}  # the other form loses the gradient of a frozen embedding's output
    if "activation_checkpointing_enable" in dir(model):  # transformers 5.24 renamed it
        model.activation_checkpointing_enable(kwargs)
    else:
        model.gradient_checkpointing_enable(kwargs)
