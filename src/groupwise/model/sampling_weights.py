"""Linear layers as sampling wants them: adapters merged, and weights laid out for the processor.

One new token per row makes thin matrix products, for which the ordinary layout is slow. oneDNN can hold a weight in
the order that its kernel reads; docs/log.md says what that brought for the demo. The copy costs the weights' memory
once more, and half a second for the demo's model, so it serves until the weights change or something else is computed
with them.

An adapter doubles and more the number of products, each thinner still. While sampling, its layers compute with one
merged weight, again a copy, so that the base stays as it is, bit for bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from groupwise.model.straight import Product, Straight, linear_layers


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


class SamplingWeights:
    """Has a model's linear layers compute with copies of their weights made for sampling."""

    def __init__(self, model: torch.nn.Module, *, exact: torch.nn.Module | None = None) -> None:
        """Nothing is copied yet.

        Args:
            model: any; layers of another kind, type or device are left alone.
            exact: a layer that keeps its weights' own precision, whatever its inputs are rounded to.
        """
        self.model, self.exact = model, exact
        self.backbone: torch.nn.Module | None = None
        """Whose layers run straight with laid-out weights, see `straight.py`; None for a model of another form."""
        self.straight: Straight | None = None
        """Runs the backbone within `laid_out`; None where the model itself does."""
        self.let_go()

    def let_go(self) -> None:
        """Of copies that were kept."""
        self._kept: dict[torch.nn.Module, Callable[..., Tensor]] = {}
        self._kept_straight: Straight | None = None
        self._kept_for: object = None

    @contextmanager
    def laid_out(
        self, *, rows: int | None, precision: torch.dtype | None = None, keep: bool = False
    ) -> Iterator[int]:
        """Within the block the layers compute with copies; without gradient.

        Args:
            rows: about how many rows will come at a time; the layout is chosen for it, others work as well. None lays
                nothing out, and merges adapters only.
            precision: that the layers' inputs are rounded to; None for the weights' own.
            keep: hold the copies behind the block, for one that asks for the same while the weights are the same.
                Weights change by being written to, or with `let_go`; adapters are merged anew each time.

        Yields:
            How many layers compute with a copy.
        """
        keep = keep and not hasattr(self.model, "peft_config")
        rows = rows and 1 << (rows - 1).bit_length()  # so that a layout does not depend on who came first
        wanted = (
            (rows, precision, [(p.data_ptr(), p._version) for p in self.model.parameters()]) if keep else None
        )
        if not keep or self._kept_for != wanted:
            self.let_go()
        changed: list[torch.nn.Module] = []
        try:
            with torch.no_grad():
                forwards: Iterable[tuple[torch.nn.Module, Callable[..., Tensor]]] = self._kept.items()
                self.straight = self._kept_straight
                if not self._kept:
                    self.straight = self._run_straight(rows, precision)
                    forwards = self._forwards(rows, precision)
                for module, forward in forwards:
                    module.forward = forward
                    changed.append(module)
            if keep:
                self._kept, self._kept_for = {module: module.forward for module in changed}, wanted
                self._kept_straight = self.straight
            yield len(changed) + (0 if self.straight is None else len(linear_layers(self.backbone)))
        finally:
            self.straight = None
            for module in changed:
                del module.forward

    def _run_straight(self, rows: int | None, precision: torch.dtype | None) -> Straight | None:
        """The backbone with laid-out weights, where there are some in float32 for all of its layers."""
        if self.backbone is None or rows is None or precision is not None or not can_pack(torch.float32):
            return None
        merged = _merged_layers(self.model)
        layers = linear_layers(self.backbone)
        if not all(layer in merged or type(layer) is torch.nn.Linear for layer in layers):
            return None  # an adapter that cannot be merged, one that is off, weights in 4 bit
        if not all(_on_cpu(layer.weight) for layer in layers):
            return None

        def product(*alike: Any) -> Product:
            found = [merged[m]() if m in merged else (m.weight.detach(), m.bias) for m in alike]
            weight, bias = found[0] if len(found) == 1 else _side_by_side(found)
            packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
            return functools.partial(_packed, packed, bias, torch.float32)

        return Straight(self.backbone, product)

    def _forwards(
        self, rows: int | None, precision: torch.dtype | None
    ) -> Iterator[tuple[torch.nn.Module, Callable[..., Tensor]]]:
        """What each layer is to compute by."""
        merged = _merged_layers(self.model)
        parts = {part for layer in merged for part in layer.modules()} - merged.keys()
        elsewhere = set() if self.straight is None else set(linear_layers(self.backbone))
        for module in self.model.modules():
            own = module in merged
            if module in elsewhere:
                continue
            if own:
                weight, bias = merged[module]()
            elif type(module) is torch.nn.Linear and module not in parts:
                weight, bias = module.weight.detach(), module.bias
            else:
                continue
            dtype = weight.dtype if module is self.exact or precision is None else precision
            if rows is not None and _on_cpu(weight) and can_pack(dtype):
                packed = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype), rows)
                bias = None if bias is None else bias.to(dtype)
                yield module, functools.partial(_packed, packed, bias, dtype)
            elif own:
                yield module, functools.partial(_linear, weight, bias)


def _side_by_side(layers: Sequence[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, Tensor | None]:
    """Layers that read the same as one."""
    weight = torch.cat([weight for weight, _ in layers])
    if all(bias is None for _, bias in layers):
        return weight, None
    return weight, torch.cat(
        [weight.new_zeros(len(weight)) if bias is None else bias for weight, bias in layers]
    )


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
