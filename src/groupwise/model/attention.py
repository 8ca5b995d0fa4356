"""Attention over packed tokens: each prompt once, its responses side by side, no padding in the model's layers.

transformers lets a model's attention be any registered function. Ours is registered as `groupwise`. Called plainly it
is transformers' own SDPA path. Called with a `groupwise` argument (which models pass down untouched), it hands queries,
keys and values to that object, which knows which tokens of the packed row may see which.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "groupwise"


class UnsupportedError(Exception):
    """The model's attention needs something that packing does not do; the plain path is used instead."""


class Layout(Protocol):
    """Knows where each sequence lies in the packed row."""

    longest_tokens: int
    """Longest sequence that attends to itself, prompt included."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """Attention of one layer.

        Args:
            layer: index of the layer.
            query: shape [heads, S, D] for the S packed tokens.
            key: shape [key-value heads, S, D].
            value: shape [key-value heads, S, D].
            scaling: factor on the scores.

        Returns:
            Shape [S, heads, D].
        """
        ...


class Once:
    """A layout of one sequence that refuses a layer which attends twice, as DiffLlama's do: while sampling, the keys
    and values of a layer have one place.
    """

    def __init__(self, longest_tokens: int) -> None:
        """See `Layout.longest_tokens`."""
        self.longest_tokens = longest_tokens
        self._layers: set[int] = set()

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """See `Layout`.

        Raises:
            UnsupportedError: the layer has attended before.
        """
        if layer in self._layers:
            raise UnsupportedError(f"its layer {layer} attends more than once")
        self._layers.add(layer)
        return causal(query, key, value, scaling).transpose(0, 1)


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    groupwise: Layout | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    if groupwise is None:
        plain: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        return plain
    return _packed(module, query, key, value, dropout, scaling, groupwise, kwargs), None


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _packed(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout: float,
    scaling: float | None,
    groupwise: Layout,
    kwargs: dict[str, Any],
) -> Tensor:
    """Out of torch.compile's sight, which would compile again for every layout."""
    for name in ("softcap", "s_aux", "position_bias"):
        if kwargs.get(name) is not None:
            raise UnsupportedError(f"its attention uses {name}")
    window = kwargs.get("sliding_window")
    if window is not None and groupwise.longest_tokens > window:
        raise UnsupportedError(f"its attention slides over {window} tokens")
    if dropout:
        raise UnsupportedError("its attention drops out")
    if query.shape[0] != 1 or query.shape[2] != key.shape[2]:
        raise UnsupportedError("it reshapes the packed row")
    out = groupwise.attend(
        module.layer_idx,  # type: ignore[arg-type]
        query[0],
        key[0],
        value[0],
        scaling if scaling is not None else query.shape[-1] ** -0.5,
    )
    return out.unsqueeze(0)


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, sdpa_mask)


def run_packed(backbone: torch.nn.Module, token_ids_S: Tensor, positions_S: Tensor, layout: Layout) -> Tensor:
    """The hidden states after the last layer for packed tokens, shape [S, hidden].

    The four-dimensional mask keeps transformers from building one of its own; our attention does not read it.
    """
    output = backbone(
        input_ids=token_ids_S.unsqueeze(0),
        position_ids=positions_S.unsqueeze(0),
        attention_mask=torch.ones(1, 1, 1, 1, dtype=torch.bool, device=token_ids_S.device),
        use_cache=False,
        groupwise=layout,
    )
    hidden: Tensor = output.last_hidden_state[0]
    return hidden


def fold_heads(query: Tensor, key_heads: int) -> Tensor:
    """[..., heads, T, D] to [..., key heads, (heads / key heads) * T, D]: grouped queries without repeating keys."""
    *batch, heads, tokens, size = query.shape
    return query.reshape(*batch, key_heads, heads // key_heads * tokens, size)


def causal(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    """Causal attention of one sequence with itself: query [heads, T, D], keys [key heads, T, D] to [heads, T, D]."""
    repeat = query.shape[0] // key.shape[0]
    if repeat > 1:
        key, value = key.repeat_interleave(repeat, 0), value.repeat_interleave(repeat, 0)
    return F.scaled_dot_product_attention(
        query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0), is_causal=True, scale=scaling
    )[0]
