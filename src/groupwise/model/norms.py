"""Root-mean-square norms in few passes over memory, forwards and backwards.

Written out in a model's own code such a norm is six operations, each of which writes a tensor of the activations' size,
and autograd keeps two of them. Here it is three, a backward pass of its own goes through the rows in parts that stay in
the processor's cache, and only what the norm read is kept. Numbers differ by rounding (1e-7 of them in float32).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_PART_ELEMENTS = 1 << 18
"""Numbers of one part of the backward pass on a CPU: 1 MB."""


class _RmsNorm(torch.autograd.Function):
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension (Zhang and Sennrich 2019, equation 4)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_D: Tensor, eps: float) -> Tensor:
        root = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = root.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight_D, scale)
        result: Tensor = (x * scale).mul_(weight_D)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight_D, scale = ctx.saved_tensors
        size = x.shape[-1]
        x_SD, grad_SD, scale_S1 = x.reshape(-1, size), grad.reshape(-1, size), scale.reshape(-1, 1)
        of_x_SD = torch.empty_like(x_SD)
        of_weight_D = torch.zeros_like(weight_D)
        rows = max(1, len(x_SD) if x.is_cuda else _PART_ELEMENTS // size)
        room_SD = torch.empty_like(x_SD[:rows])
        for start in range(0, len(x_SD), rows):
            part = slice(start, start + rows)
            # With n = x * scale and g the gradient of n * weight: d weight = sum of g n over the rows,
            # d x = scale (g weight - n mean(g weight n)).
            normal_SD = torch.mul(x_SD[part], scale_S1[part], out=of_x_SD[part])
            product_SD = torch.mul(grad_SD[part], normal_SD, out=room_SD[: len(normal_SD)])
            of_weight_D += product_SD.sum(0)
            mean_S1 = torch.mv(product_SD, weight_D)[:, None] / size
            weighted_SD = torch.mul(grad_SD[part], weight_D, out=product_SD)
            normal_SD.mul_(-mean_S1).add_(weighted_SD).mul_(scale_S1[part])
        return of_x_SD.view_as(x), of_weight_D if ctx.needs_input_grad[1] else None, None


def faster_norms(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Have the model's RMS norms computed here, where inputs and weights are float32; gives those that are.

    Norms are known by what they compute: one whose result on random numbers is another (1 + weight, a bias, a mean
    taken off) is left alone. For other types, and in compiled code, each goes on with its own computation.

    Args:
        model: any; `forward` is set on its norms, and on no class.

    Returns:
        The norms changed now; those that were before are not among them.
    """
    changed = []
    for module in model.modules():
        eps = eps_of(module)
        weights = [name for name, _ in module.named_parameters()]
        named = type(module).__name__.endswith("RMSNorm") and "forward" not in module.__dict__
        if named and weights == ["weight"] and isinstance(eps, float) and _agrees(module, eps):
            module.forward = functools.partial(_forward, module, eps)
            changed.append(module)
    return changed


def is_faster_norm(module: torch.nn.Module) -> bool:
    """True for one whose `forward` is ours."""
    return getattr(module.__dict__.get("forward"), "func", None) is _forward


def eps_of(module: torch.nn.Module) -> Any:
    """What a norm adds below the root, under the names that models have for it; None when it has none."""
    return getattr(module, "variance_epsilon", getattr(module, "eps", None))


def own_norms(changed: list[torch.nn.Module]) -> None:
    """Undo `faster_norms`."""
    for module in changed:
        del module.forward


def _agrees(module: torch.nn.Module, eps: float) -> bool:
    weight: Any = module.weight
    if weight.dim() != 1 or weight.dtype is not torch.float32:
        return False
    draw = torch.Generator().manual_seed(0)
    numbers = torch.randn(6, len(weight), generator=draw)
    numbers[3:] *= math.sqrt(eps)  # so small that eps, and where it stands, makes a difference
    other = torch.rand(len(weight), generator=draw) + 0.5  # all of a new model's weights are the same
    numbers, other = numbers.to(weight.device), other.to(weight.device)
    try:
        with torch.no_grad():
            own = torch.func.functional_call(module, {"weight": other}, (numbers,))
            mine: Tensor = _RmsNorm.apply(numbers, other, eps)  # type: ignore[no-untyped-call]
            return own.shape == mine.shape and torch.allclose(mine, own, rtol=1e-5, atol=1e-6)
    except Exception:  # a norm of somebody's own that asks for more than numbers
        return False


def _forward(module: Any, eps: float, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    plain = hidden.dtype is torch.float32 and module.weight.dtype is torch.float32 and not (args or kwargs)
    if not plain or torch.compiler.is_compiling():
        own: Tensor = type(module).forward(module, hidden, *args, **kwargs)
        return own
    normal: Tensor = _RmsNorm.apply(hidden, module.weight, eps)  # type: ignore[no-untyped-call]
    return normal
