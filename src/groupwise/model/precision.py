"""The precision of the products in the model's layers: float32, or bfloat16 over weights that stay in float32.

In bfloat16 the weights, their gradient, the optimiser, the residual stream, norms, the softmax of attention and the
head's logits stay in float32; only the inputs of the layers' matrix products are rounded (torch.autocast). The head is
left out since logits rounded to bfloat16 move log-probs by up to a tenth of a nat.
"""

from __future__ import annotations

import platform
from contextlib import AbstractContextManager
from typing import Literal

import torch

Name = Literal["auto", "float32", "bfloat16"]

_WORTH_IT = 50_000_000
"""Weights from which `auto` takes bfloat16: below, casting costs about what the faster products save."""


def has_bfloat16(device: torch.device) -> bool:
    """True when the device multiplies bfloat16 matrices faster than float32 ones, rather than emulating it."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "cpu":
        # oneDNN says yes where AVX-512 lets it emulate them, which takes three times as long as float32.
        emulated = platform.machine().lower() in ("x86_64", "amd64") and not (
            torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        )
        return not emulated and bool(
            torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
            and torch.ops.mkldnn._is_mkldnn_bf16_supported()
        )
    return False


def resolve_precision(name: Name, device: torch.device, *, weights: int) -> torch.dtype | None:
    """The type that the inputs of the layers' products are rounded to; None leaves them as they are.

    Args:
        name: `model.precision`. `auto` is bfloat16 where the device has it and the model is large enough to gain.
        device: where the model is.
        weights: how many the model has.
    """
    if name == "float32" or (name == "auto" and (weights < _WORTH_IT or not has_bfloat16(device))):
        return None
    return torch.bfloat16


def rounded(device: torch.device, dtype: torch.dtype | None) -> AbstractContextManager[object]:
    """Within the block products take inputs of `dtype`; None changes nothing."""
    return torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None)


def exactly(device: torch.device) -> AbstractContextManager[object]:
    """Within the block products are in the precision of what they are given."""
    return torch.autocast(device.type, enabled=False)
