"""The gated product of feed-forward parts, silu(gate) * up, in few passes over memory, forwards and backwards.

As a model writes it autograd keeps three tensors of the part's inner size and its backward pass writes three more. Here
two are kept, gate and up, and the backward pass goes through them in parts that stay in the processor's cache. Numbers
differ by rounding (1e-7 of them in float32).
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

_PART_ELEMENTS = 1 << 16
"""Numbers of one part of the backward pass on a CPU: 256 KB, of each of six tensors."""
_LAYERS = ("gate_proj", "up_proj", "down_proj")


class _Gated(torch.autograd.Function):
    """silu(gate) * up (Shazeer 2020, "GLU variants improve transformer", SwiGLU in section 2)."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return F.silu(gate).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        saved = ctx.saved_tensors  # once: gradient checkpointing computes it when it is asked for
        gate, up = (x.reshape(-1) for x in saved)
        grad = grad.reshape(-1)
        of_gate, of_up = torch.empty_like(gate), torch.empty_like(up)
        size = _PART_ELEMENTS if gate.is_cpu else max(1, len(gate))
        room = torch.empty_like(gate[:size])
        for start in range(0, len(gate), size):
            part = slice(start, start + size)
            g, of_g = gate[part], of_gate[part]
            # d up = grad silu(gate); d gate = grad up silu'(gate).
            torch.ops.aten.silu.out(g, out=of_up[part])
            of_up[part].mul_(grad[part])
            scaled = torch.mul(grad[part], up[part], out=room[: len(g)])
            torch.ops.aten.silu_backward.grad_input(scaled, g, grad_input=of_g)
        return of_gate.view(saved[0].shape), of_up.view(saved[1].shape)


def faster_gates(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Have the gated products of the model's feed-forward parts computed here, where they are float32.

    Parts are known by their layers' names and by what they compute: one whose result on random numbers is another
    (another activation, a limit, something between the layers) is left alone. In compiled code each goes on with its
    own computation, and for other types with its own activation.

    Args:
        model: any; `forward` is set on its parts, and on no class.

    Returns:
        The parts changed now; those that were before are not among them.
    """
    changed = []
    for module in model.modules():
        named = all(hasattr(module, name) for name in (*_LAYERS, "act_fn"))
        if named and "forward" not in module.__dict__ and _agrees(module):
            module.forward = functools.partial(_forward, module)
            changed.append(module)
    return changed


def is_faster_gate(module: torch.nn.Module) -> bool:
    """True for one whose `forward` is ours."""
    return getattr(module.__dict__.get("forward"), "func", None) is _forward


def own_gates(changed: list[torch.nn.Module]) -> None:
    """Undo `faster_gates`."""
    for module in changed:
        del module.forward


def _agrees(module: Any) -> bool:
    size, where = getattr(module.gate_proj, "in_features", None), next(module.parameters(), None)
    if not isinstance(size, int) or where is None:
        return False
    numbers = torch.randn(1, 3, size, generator=torch.Generator().manual_seed(0)).to(where.device)
    try:
        with torch.no_grad():
            if not torch.equal(module.act_fn(10 * numbers), F.silu(10 * numbers)):
                return False
            numbers = torch.cat([numbers, 1e3 * numbers], 1)  # large enough to meet a limit
            own, mine = module(numbers), _forward(module, numbers)
            same = own.shape == mine.shape and torch.allclose(
                mine, own, rtol=1e-4, atol=1e-6 * float(own.abs().max())
            )
            return same and bool(own.any())  # weights of 0 would hide what stands between them
    except Exception:  # it asks for more than numbers, or for those of another type
        return False


def _forward(module: Any, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    if args or kwargs or torch.compiler.is_compiling():
        own: Tensor = type(module).forward(module, hidden, *args, **kwargs)
        return own
    gate, up = module.gate_proj(hidden), module.up_proj(hidden)
    if gate.dtype is torch.float32 and up.dtype is torch.float32:
        product: Tensor = _Gated.apply(gate, up)  # type: ignore[no-untyped-call]
    else:
        product = module.act_fn(gate) * up
    result: Tensor = module.down_proj(product)
    return result
