"""The frozen layers below an adapter in 4 bit: QLoRA (Dettmers et al. 2023, arXiv:2305.14314), through bitsandbytes.

A weight is one of 16 levels times the largest absolute value of its block of 64 neighbours. Layers compute with the
weights unpacked, a layer at a time, so that only what is held shrinks. Embedding, norms and head keep their dtype: the
head's weight is read without calling it, and all three are small beside the layers of a large model.

The model is loaded whole into the processor's memory and quantised on its way to the device, so that it may come from
any source that `load_policy` knows.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

import torch

from groupwise.config.memory import MemoryConfig
from groupwise.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

BLOCK = 64
"""Weights that share a scale: bitsandbytes' default, and the paper's."""
SCALES_BLOCK = 256
"""Scales that share a scale of their own, where scales are quantised too."""


def check_installed(config: MemoryConfig) -> None:
    """Refuse to begin what bitsandbytes is missing for.

    Raises:
        ConfigError: `memory.quantise` is set and the package is not there.
    """
    if config.quantise is not None and importlib.util.find_spec("bitsandbytes") is None:
        raise ConfigError(
            f"memory.quantise is {config.quantise}, but bitsandbytes is not installed; "
            "pip install 'groupwise[quant]', or remove it"
        )


def bits_per_weight(config: MemoryConfig) -> float:
    """What a quantised weight takes: 4 bits and its share of the scale, 32 bits for 64 weights.

    With quantised scales these take 8 bits each, and 32 more for 256 of them: 4 + 8 / 64 + 32 / (64 * 256) = 4.127.
    """
    scale = 32 / BLOCK if not config.quantise_scales else 8 / BLOCK + 32 / (BLOCK * SCALES_BLOCK)
    return 4 + scale


def quantise(model: PreTrainedModel, config: MemoryConfig, *, compute: torch.dtype) -> int:
    """Put 4-bit layers in the place of every linear layer but the head, and move the model's other weights nowhere.

    On the CPU they are quantised here; else on the way to the device, by `model.to`.

    Args:
        model: on the CPU, plain; changed in place.
        config: the section `memory`, with `quantise` set.
        compute: the type that weights are unpacked to and products are computed in.

    Returns:
        How many layers.
    """
    layers = _bitsandbytes().nn
    head = model.get_output_embeddings()
    found = [
        (name, layer)
        for name, layer in model.named_modules()
        if type(layer) is torch.nn.Linear and layer is not head
    ]
    for name, layer in found:
        packed: Any = layers.Linear4bit(
            layer.in_features,
            layer.out_features,
            bias=layer.bias is not None,
            compute_dtype=compute,
            compress_statistics=config.quantise_scales,
            quant_type=config.quantise,
            device="meta",
        )
        packed.weight = layers.Params4bit(
            layer.weight.data,
            requires_grad=False,
            compress_statistics=config.quantise_scales,
            quant_type=config.quantise,
            module=packed,
        )
        if layer.bias is not None:
            packed.bias = torch.nn.Parameter(layer.bias.data, requires_grad=False)
        # bitsandbytes would lay the weights out anew for sampling, which the next training pass could not undo.
        packed.support_avx512bf16_for_cpu = False
        packed.train(layer.training)
        above, _, last = name.rpartition(".")
        setattr(model.get_submodule(above), last, packed.to("cpu"))
    model.is_loaded_in_4bit = True  # what PEFT asks before it chooses the adapter's layers
    return len(found)


def _bitsandbytes() -> Any:
    """The package, which only the extra `quant` brings."""
    return importlib.import_module("bitsandbytes")


def is_quantised(layer: torch.nn.Module) -> bool:
    """True for a 4-bit layer."""
    return type(layer).__name__ == "Linear4bit" and hasattr(layer, "quant_state")


def plain_weight(layer: torch.nn.Module) -> Tensor:
    """The weight of a 4-bit layer unpacked, shape [out, in], in the dtype that it was quantised from."""
    weight: Any = layer.weight
    unpacked: Tensor = _bitsandbytes().functional.dequantize_4bit(weight.data, weight.quant_state)
    return unpacked


def weight_count(parameter: torch.nn.Parameter) -> int:
    """How many weights a parameter stands for: its own, or those packed in it."""
    state: Any = getattr(parameter, "quant_state", None)
    return parameter.numel() if state is None else int(torch.Size(state.shape).numel())
