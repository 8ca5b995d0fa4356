"""Attention of a whole packed row in one FlexAttention kernel, for GPUs.

Prompts, rectangles of responses and trees are all the same here: a token sees itself and what leads to it. Numbered by
a walk through each family, that is an interval: key k is seen from query q when enter[k] <= enter[q] < leave[k].

FlexAttention (Dong et al. 2024) skips the blocks of the score matrix that this leaves empty. It has no backward pass
on the CPU, where the packed row is attended to family by family instead.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from groupwise.errors import ConfigError


def resolve_flex(name: Literal["auto", "sdpa", "flex"], device: torch.device) -> bool:
    """True when FlexAttention is to be used.

    Args:
        name: `model.attention`; `auto` takes FlexAttention on CUDA devices where Triton, which compiles it, is there.
        device: where the model is.

    Raises:
        ConfigError: it is asked for where it cannot train.
    """
    able = device.type == "cuda" and importlib.util.find_spec("triton") is not None
    if name == "flex" and not able:
        reason = "Triton is not installed" if device.type == "cuda" else f"the model is on {device.type}"
        raise ConfigError(
            f"model.attention is flex, but {reason}, and FlexAttention trains on CUDA devices with Triton only; "
            "use auto or sdpa"
        )
    return able and name != "sdpa"


class Tree:
    """Who sees whom in a packed row, shape [S] for S tokens."""

    def __init__(self, enter_S: Tensor, leave_S: Tensor) -> None:
        """Take the numbering.

        Args:
            enter_S: where a walk meets each token.
            leave_S: where it has met all that follow from it.
        """

        self.enter_S, self.leave_S = enter_S, leave_S

        def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (enter_S[key] <= enter_S[query]) & (enter_S[query] < leave_S[key])

        size = len(enter_S)
        self.mask = create_block_mask(sees, None, None, size, size, device=str(enter_S.device))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """See `attention.Layout`; [heads, S, D] and [key heads, S, D] to [S, heads, D]."""
        kernel: Any = _compiled() if query.is_cuda else flex_attention
        dtype = value.dtype  # rotary embeddings may have left queries and keys in float32 under autocast
        out: Tensor = kernel(
            query[None].to(dtype),
            key[None].to(dtype),
            value[None],
            block_mask=self.mask,
            scale=scaling,
            enable_gqa=query.shape[0] != key.shape[0],
        )
        return out[0].transpose(0, 1)


@functools.cache
def _compiled() -> Callable[..., Any]:
    """Compiled once for rows of any length; eager FlexAttention holds the whole score matrix."""
    kernel: Callable[..., Any] = torch.compile(flex_attention, dynamic=True)
    return kernel
