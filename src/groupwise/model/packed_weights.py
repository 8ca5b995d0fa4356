"""Linear layers with their weights laid out for the processor while sampling.

One new token per row makes thin matrix products, for which the ordinary layout is slow. oneDNN can hold a weight in
the order that its kernel reads; docs/log.md says what that brought for the demo. The
copy costs the weights' memory once more, and is made anew for each call, since weights change with every update.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def available() -> bool:
    """True when this build of torch has oneDNN's prepacked linear operators for the CPU."""
    return (
        torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


@contextmanager
def packed_linears(model: torch.nn.Module, rows: int) -> Iterator[int]:
    """Within the block the model's linear layers compute with prepacked weights; without gradient, on the CPU.

    Args:
        model: any; layers of another kind, type or device are left alone.
        rows: about how many rows will come at a time; the layout is chosen for it, others work as well.

    Yields:
        How many layers were packed; 0 where packing is not available.
    """
    packed: list[torch.nn.Module] = []
    try:
        if available():
            for module in model.modules():
                if type(module) is torch.nn.Linear and _fits(module.weight):
                    weight = torch.ops.mkldnn._reorder_linear_weight(module.weight.detach(), rows)
                    module.forward = functools.partial(_linear, weight, module.bias)  # type: ignore[method-assign]
                    packed.append(module)
        yield len(packed)
    finally:
        for module in packed:
            del module.forward


def _fits(weight: Tensor) -> bool:
    return weight.device.type == "cpu" and weight.dtype is torch.float32 and weight.is_contiguous()


def _linear(weight: Any, bias: Tensor | None, input: Tensor) -> Tensor:
    output: Tensor = torch.ops.mkldnn._linear_pointwise(input, weight, bias, "none", [], "")
    return output
