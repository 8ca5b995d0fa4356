"""Linear layers as sampling wants them: adapters merged, and weights laid out for the processor.

One new token per row makes thin matrix products, for which the ordinary layout is slow. oneDNN can hold a weight in
the order that its kernel reads; docs/log.md says what that brought for the demo. The copy costs the weights' memory
once more, and is made anew for each call, since weights change with every update.

An adapter doubles and more the number of products, each thinner still. While sampling, its layers compute with one
merged weight, again a copy, so that the base stays as it is, bit for bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def can_pack(dtype: torch.dtype) -> bool:
    """True when this build of torch and this processor have oneDNN's prepacked linear operators for the type."""
    return (
        torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and (
            dtype is torch.float32
            or (dtype is torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))
        )
    )


@contextmanager
def sampling_weights(
    model: torch.nn.Module,
    *,
    rows: int | None,
    precision: torch.dtype | None = None,
    exact: torch.nn.Module | None = None,
) -> Iterator[int]:
    """Within the block the model's linear layers compute with copies of their weights made for it; without gradient.

    Args:
        model: any; layers of another kind, type or device are left alone.
        rows: about how many rows will come at a time; the layout is chosen for it, others work as well. None lays
            nothing out, and merges adapters only.
        precision: that the layers' inputs are rounded to; None for the weights' own.
        exact: a layer that keeps its weights' own precision all the same.

    Yields:
        How many layers compute with a copy.
    """
    changed: list[torch.nn.Module] = []
    merged = _merged_layers(model)
    parts = {part for layer in merged for part in layer.modules()} - merged.keys()
    try:
        with torch.no_grad():
            for module in model.modules():
                own = module in merged
                if own:
                    weight, bias = merged[module]()
                elif type(module) is torch.nn.Linear and module not in parts:
                    weight, bias = module.weight.detach(), module.bias
                else:
                    continue
                dtype = weight.dtype if module is exact or precision is None else precision
                packs = rows is not None and _on_cpu(weight) and can_pack(dtype)
                if packs:
                    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype), rows)
                    bias = None if bias is None else bias.to(dtype)
                    module.forward = functools.partial(_packed, laid_out, bias, dtype)
                elif own:
                    module.forward = functools.partial(_linear, weight, bias)
                else:
                    continue
                changed.append(module)
        yield len(changed)
    finally:
        for module in changed:
            del module.forward


def _merged_layers(
    model: torch.nn.Module,
) -> dict[torch.nn.Module, Callable[[], tuple[Tensor, Tensor | None]]]:
    if not hasattr(model, "peft_config"):
        return {}
    from groupwise.model.lora import merged_layers  # PEFT takes seconds to import

    return merged_layers(model)


def _on_cpu(weight: Tensor) -> bool:
    return weight.device.type == "cpu" and weight.dtype is torch.float32 and weight.is_contiguous()


def _packed(weight: Any, bias: Tensor | None, dtype: torch.dtype, input: Tensor) -> Tensor:
    output: Tensor = torch.ops.mkldnn._linear_pointwise(input.to(dtype), weight, bias, "none", [], "")
    return output


def _linear(weight: Tensor, bias: Tensor | None, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return F.linear(input, weight, bias)
