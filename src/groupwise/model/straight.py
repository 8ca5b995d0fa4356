"""A model's layers one operation behind the other while sampling, with layers that read the same as one product.

One new token per row is so little work for each operation that a fifth of sampling passes between them: modules call
modules, a rotation has ten steps, three products stand where one could. Here the layers of Llama and its kin run as a
loop over tensors. Nothing is taken from a model's name: parts are known by their children, and the loop serves only
where it gives the model's own hidden states for random tokens, near the first position and near the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from groupwise.model.attention import Layout, Once, UnsupportedError, run_packed
from groupwise.model.gated import is_faster_gate
from groupwise.model.norms import eps_of, is_faster_norm

Product = Callable[[Tensor], Tensor]
"""x [S, in] to the outputs of one or more linear layers side by side, [S, out]."""
Heard = Callable[[torch.nn.Module, Tensor], None]
"""Is told what each of the model's own linear layers gives, shape [S, out]."""

_BACKBONE = {"embed_tokens", "layers", "norm", "rotary_emb"}
_LAYER = {"input_layernorm", "self_attn", "post_attention_layernorm", "mlp"}
_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
_HEAD_NORMS = {"q_norm", "k_norm"}
_FEEDS = ("gate_proj", "up_proj", "down_proj")
_PROBED = 7  # tokens
_AGREES = 1e-4  # of a hidden state's length: rounding is a hundredth of it


class _Norm:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension (Zhang and Sennrich 2019, equation 4), with what does
    not depend on x made beforehand; without a backward pass, for which see `norms.py`."""

    def __init__(self, module: Any) -> None:
        size = module.weight.shape[0]
        # Divided is by sqrt(sum(x^2) + D eps), so the weight is times sqrt(D).
        self.weight_D = module.weight.detach() * math.sqrt(size)
        self.eps = self.weight_D.new_full((1,), size * eps_of(module))

    def __call__(self, x: Tensor) -> Tensor:
        root = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return torch.mul(x, torch.addcmul(self.eps, root, root).rsqrt_()).mul_(self.weight_D)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """One layer with its products laid out."""

    linear: tuple[Any, ...]
    """The model's own, in the order of `_PROJECTIONS` and `_FEEDS`."""
    sizes: list[int]
    """What queries, keys and values take of `qkv`."""
    head_size: int
    scaling: float
    """Of scores."""
    first: _Norm
    qkv: Product
    of_heads: tuple[_Norm, _Norm] | None
    """Of each query and key."""
    out: Product
    second: _Norm
    gate_up: Product
    down: Product


class Straight:
    """Runs packed tokens through the layers, as `attention.run_packed` does through the model."""

    def __init__(self, backbone: Any, product: Callable[..., Product]) -> None:
        """Lay the layers out, with their weights as they are now.

        Args:
            backbone: one that `fits`.
            product: of one or more of its linear layers that read the same.
        """
        self._backbone = backbone
        self._layers = []
        for own in backbone.layers:
            attention, mlp = own.self_attn, own.mlp
            normed = hasattr(attention, "q_norm")
            linear = _linear_layers_of(own)
            layer = _Layer(
                linear=linear,
                sizes=[each.out_features for each in linear[:3]],
                head_size=attention.head_dim,
                scaling=attention.scaling,
                first=_Norm(own.input_layernorm),
                qkv=product(attention.q_proj, attention.k_proj, attention.v_proj),
                of_heads=(_Norm(attention.q_norm), _Norm(attention.k_norm)) if normed else None,
                out=product(attention.o_proj),
                second=_Norm(own.post_attention_layernorm),
                gate_up=product(mlp.gate_proj, mlp.up_proj),
                down=product(mlp.down_proj),
            )
            self._layers.append(layer)
        self._last = _Norm(backbone.norm)

    @torch.no_grad()
    def __call__(
        self, token_ids_S: Tensor, positions_S: Tensor, layout: Layout, heard: Heard | None = None
    ) -> Tensor:
        """The hidden states behind the last layer, shape [S, hidden].

        Args:
            token_ids_S: packed tokens.
            positions_S: of each in its sequence.
            layout: attends.
            heard: is told of every product.
        """
        x = self._backbone.embed_tokens(token_ids_S)
        cos, sin = self._backbone.rotary_emb(x[None], position_ids=positions_S[None])
        half = cos.shape[-1] // 2
        cos, sin = cos[0, :, None], sin[0, :, None]
        sin = torch.cat([-sin[..., :half], sin[..., half:]], -1)
        for index, layer in enumerate(self._layers):
            qkv = layer.qkv(layer.first(x))
            attended = layer.out(_attend(index, layer, qkv, cos, sin, layout))
            x.add_(attended)
            gate, up = layer.gate_up(layer.second(x)).chunk(2, -1)
            fed = layer.down(F.silu(gate).mul_(up))
            x.add_(fed)
            if heard is not None:
                outputs = (*torch.split(qkv, layer.sizes, -1), attended, gate, up, fed)
                for module, output in zip(layer.linear, outputs, strict=True):
                    heard(module, output)
        return self._last(x)


def _attend(index: int, layer: _Layer, qkv: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """What the layer's heads read, side by side: [S, heads * D]. The first half of `sin` is negative."""
    size, tokens = layer.head_size, len(qkv)
    at, turning = layer.sizes[0] // size, layer.sizes[0] + layer.sizes[1]
    heads = qkv[:, :turning].view(tokens, -1, size)
    if layer.of_heads is not None:
        of_query, of_key = layer.of_heads
        heads = torch.cat([of_query(heads[:, :at]), of_key(heads[:, at:])], 1)
    # Number i of a head is turned together with number i + D/2 (Su et al. 2021, equation 34, in transformers' order).
    turned = torch.addcmul(heads * cos, heads.roll(size // 2, -1), sin).transpose(0, 1)
    value = qkv[:, turning:].view(tokens, -1, size).transpose(0, 1)
    return layout.attend(index, turned[:at], turned[at:], value, layer.scaling).reshape(tokens, -1)


def _linear_layers_of(layer: Any) -> tuple[Any, ...]:
    named = ((layer.self_attn, _PROJECTIONS), (layer.mlp, _FEEDS))
    return tuple(getattr(part, name) for part, names in named for name in names)


def linear_layers(backbone: Any) -> list[Any]:
    """Those whose place `Straight` takes."""
    return [each for layer in backbone.layers for each in _linear_layers_of(layer)]


def fits(backbone: Any, longest_tokens: int) -> bool:
    """True when the loop computes what the backbone computes, which has been given norms and gates of ours.

    Args:
        backbone: whose attention is ours already.
        longest_tokens: of a sequence.
    """
    if not _alike(backbone):
        return False
    straight = Straight(backbone, lambda *layers: lambda x: torch.cat([layer(x) for layer in layers], -1))
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(backbone.embed_tokens.num_embeddings, (_PROBED,), generator=draw)
    ids = ids.to(backbone.embed_tokens.weight.device)
    for start in (0, max(0, longest_tokens - _PROBED)):
        positions = torch.arange(start, start + _PROBED, device=ids.device)
        try:
            with torch.no_grad():
                own = run_packed(backbone, ids, positions, Once(longest_tokens))
                gap = straight(ids, positions, Once(longest_tokens)) - own
        except (UnsupportedError, RuntimeError, TypeError, ValueError, AttributeError):
            return False
        if not bool((gap.norm(dim=-1) <= _AGREES * own.norm(dim=-1)).all()):
            return False
    return True


def _alike(backbone: Any) -> bool:
    """True when parts have the names of Llama's and its kin, and are what they are called."""
    if {name for name, _ in backbone.named_children()} != _BACKBONE or not is_faster_norm(backbone.norm):
        return False
    embedding = backbone.embed_tokens
    plain = type(embedding) is torch.nn.Embedding and embedding.weight.is_cpu
    return plain and all(map(_layer_alike, backbone.layers))


def _layer_alike(layer: Any) -> bool:
    if {name for name, _ in layer.named_children()} != _LAYER:
        return False
    attention = layer.self_attn
    inner = {name for name, _ in attention.named_children()}
    if inner not in (set(_PROJECTIONS), _HEAD_NORMS.union(_PROJECTIONS)):
        return False
    norms = [layer.input_layernorm, layer.post_attention_layernorm]
    norms += [getattr(attention, name) for name in _HEAD_NORMS & inner]
    return (
        all(map(is_faster_norm, norms))
        and is_faster_gate(layer.mlp)
        and all(isinstance(getattr(each, "out_features", None), int) for each in _linear_layers_of(layer))
        and isinstance(getattr(attention, "head_dim", None), int)
        and isinstance(getattr(attention, "scaling", None), float)
        and attention.k_proj.out_features == attention.v_proj.out_features
        and not any(True for part in (layer, attention) for _ in part.parameters(recurse=False))
    )
