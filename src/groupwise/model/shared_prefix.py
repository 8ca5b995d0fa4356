"""Training forward with nothing computed twice: each prompt once, and what the responses to it have in common once.

A micro-batch is one packed row of tokens. Prompts share the beginning that all of them have in common, such as a
system prompt; the responses of a group share their prompt, and responses that begin alike share their beginning too:
they form a tree. The gradient is that of the plain computation, since a token that serves
several responses receives the sum of what they send back.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from groupwise.model.attention import causal, fold_heads, run_packed
from groupwise.model.flex import Tree
from groupwise.model.recorded import RecordedLayers

_TREE_TOKENS = 1024
"""A tree's attention is one square of tokens against tokens; above this many it costs more than sharing saves."""
_LEAST_STEM = 8
"""Tokens that prompts must have in common before they are shared: their attention is in more pieces then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A prompt and some of its responses."""

    prompt_ids: NDArray[np.int32]
    """Shape [prompt tokens]."""
    responses: Sequence[NDArray[np.int32]]
    """Token ids of each response, shape [T_i]."""


def stem_of(prompts: Sequence[NDArray[np.int32]]) -> int:
    """How many tokens at the beginning of all these prompts are computed once for all; each keeps one of its own."""
    if len(prompts) < 2:
        return 0
    most = min(map(len, prompts)) - 1
    alike = np.array([p[:most] == prompts[0][:most] for p in prompts[1:]]).all(0)
    stem = most if alike.all() else int(np.argmin(alike))
    return stem if stem >= _LEAST_STEM else 0


def behind_stem(stem: int, tokens: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Additive mask of causal attention for tokens behind a stem, shape [tokens, stem + tokens]."""
    mask = torch.zeros(tokens, stem + tokens, device=device, dtype=dtype)
    mask[:, stem:].masked_fill_(~torch.ones_like(mask[:, stem:], dtype=torch.bool).tril(), float("-inf"))
    return mask


@dataclass(frozen=True, slots=True, kw_only=True)
class _Branches:
    """The response tokens of a family as they are computed, and what each predicts.

    Only tokens that are followed by another are computed: the last of a response is an input to nothing.
    """

    token_ids: NDArray[np.int64]
    """Computed tokens, shape [S]."""
    depth: NDArray[np.int64]
    """How many response tokens precede each, shape [S]."""
    parent: NDArray[np.int64]
    """The computed token before each in its response, -1 behind the prompt; shape [S]."""
    predict: NDArray[np.int64]
    """For each different prediction, the computed token it comes from; -1 for the prompt's last. Shape [U]."""
    target: NDArray[np.int64]
    """The token it predicts, shape [U]."""
    serves: NDArray[np.int64]
    """For each response token, in order, its prediction. Shape [M]."""
    visible: NDArray[np.bool_] | None
    """[S, S], True where a computed token sees another; None when the responses are side by side in a rectangle."""
    lengths: tuple[int, ...]
    """Computed tokens of each response, when they are side by side."""
    enter: NDArray[np.int64]
    """Place of each computed token when every branch is walked to its end before the next, shape [S]."""
    leave: NDArray[np.int64]
    """Place at which what follows from it ends: it is seen from its own place up to this one, shape [S]."""


def _side_by_side(responses: Sequence[NDArray[np.int32]]) -> _Branches:
    """Each different response whole, one behind the other."""
    seen: dict[bytes, int] = {}
    index = [seen.setdefault(r.tobytes(), len(seen)) for r in responses]
    unique = [np.frombuffer(key, dtype=np.int32) for key in seen]
    lengths = [len(r) - 1 for r in unique]
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    firsts = np.concatenate([[0], np.cumsum([len(r) for r in unique])[:-1]]).astype(np.int64)
    predict = [np.concatenate([[-1], np.arange(s, s + n)]) for s, n in zip(starts, lengths, strict=True)]
    return _Branches(
        token_ids=np.concatenate([r[:-1] for r in unique]).astype(np.int64),
        depth=np.concatenate([np.arange(n) for n in lengths]).astype(np.int64),
        parent=np.concatenate(
            [[-1, *range(s, s + n - 1)][:n] for s, n in zip(starts, lengths, strict=True)]
        ).astype(np.int64),
        predict=np.concatenate(predict).astype(np.int64),
        target=np.concatenate(unique).astype(np.int64),
        serves=np.concatenate([np.arange(firsts[i], firsts[i] + len(unique[i])) for i in index]),
        visible=None,
        lengths=tuple(lengths),
        enter=np.arange(sum(lengths)),
        leave=np.repeat(starts + lengths, lengths),
    )


def _tree(responses: Sequence[NDArray[np.int32]]) -> _Branches:
    """Responses that begin alike as one branch until they part."""
    children: dict[tuple[int, int], int] = {}
    parent: list[int] = []
    target: list[int] = []
    serves: list[int] = []
    for response in responses:
        node = -1
        for token in response.tolist():
            child = children.setdefault((node, token), len(parent))
            if child == len(parent):
                parent.append(node)
                target.append(token)
            node = child
            serves.append(node)
    inner = sorted(set(parent) - {-1})  # nodes with children are the inputs
    place = {node: i for i, node in enumerate(inner)}
    visible = np.zeros((len(inner), len(inner)), dtype=np.bool_)
    depth = np.zeros(len(inner), dtype=np.int64)
    for i, node in enumerate(inner):  # a parent comes before its children
        if parent[node] >= 0:
            before = place[parent[node]]
            visible[i] = visible[before]
            depth[i] = depth[before] + 1
        visible[i, i] = True
    above = [place.get(parent[node], -1) for node in inner]
    enter, leave = _walk(above)
    return _Branches(
        token_ids=np.array([target[node] for node in inner], dtype=np.int64),
        depth=depth,
        parent=np.array(above, dtype=np.int64),
        predict=np.array([place.get(node, -1) for node in parent], dtype=np.int64),
        target=np.array(target, dtype=np.int64),
        serves=np.array(serves, dtype=np.int64),
        visible=visible,
        lengths=(),
        enter=enter,
        leave=leave,
    )


def _walk(parent: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where a walk through a tree, parents before children, enters and leaves each node; -1 is the root's parent."""
    size = np.ones(len(parent), dtype=np.int64)
    for node in reversed(range(len(parent))):
        if parent[node] >= 0:
            size[parent[node]] += size[node]
    enter = np.zeros(len(parent), dtype=np.int64)
    free = {-1: 0}  # the next place below each node
    for node, above in enumerate(parent):
        enter[node] = free[above]
        free[above] += size[node]
        free[node] = enter[node] + 1
    return enter, enter + size


def _branches(responses: Sequence[NDArray[np.int32]]) -> _Branches:
    """The cheaper arrangement: a tree where beginnings are shared and it is small."""
    flat = _side_by_side(responses)
    if len(flat.lengths) < 2 or len(flat.token_ids) > 4 * _TREE_TOKENS:
        return flat
    tree = _tree(responses)
    small = len(tree.token_ids) <= _TREE_TOKENS
    return tree if small and len(tree.token_ids) < 0.95 * len(flat.token_ids) else flat


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """How one family's responses attend."""

    mask: Tensor
    """Additive: [T, prompt + T] of a rectangle, [S, prompt + S] of a tree; 0 where a token may look."""
    rows: int
    """Responses of a rectangle; 0 for a tree."""
    gather: Tensor | None
    """Index [rows, T] into the family's response tokens; None when all are equally long."""
    scatter: Tensor | None
    """Index of each response token in the flattened [rows * T]."""


class PackedFamilies:
    """The layout of a micro-batch in one row: the stem that all prompts share, if any, then what a prompt has of its
    own, its responses, what the next prompt has of its own, its responses, ..."""

    def __init__(
        self, families: Sequence[Family], device: torch.device, dtype: torch.dtype, *, flex: bool = False
    ) -> None:
        """Lay the families out.

        Args:
            families: prompts and their responses.
            device: where the model is.
            dtype: of the masks.
            flex: attend by FlexAttention, over the whole row at once, see `model/flex.py`.
        """
        enter: list[NDArray[np.int64]] = []
        leave: list[NDArray[np.int64]] = []
        ids: list[NDArray[np.int64]] = []
        positions: list[NDArray[np.int64]] = []
        parents: list[NDArray[np.int64]] = []
        predict: list[NDArray[np.int64]] = []
        targets: list[NDArray[np.int64]] = []
        serves: list[NDArray[np.int64]] = []
        self.blocks: list[_Block] = []
        self.masks: list[Tensor] = []
        """Behind a stem: how each prompt's own tokens attend to it and themselves."""
        stem = self.stem = stem_of([family.prompt_ids for family in families])
        self.sizes: list[int] = [stem]
        """Tokens of the stem, of the first prompt behind it, of its responses, of the second prompt, ..."""
        self.longest_tokens = 0
        if stem:
            ids.append(families[0].prompt_ids[:stem].astype(np.int64))
            positions.append(np.arange(stem))
            parents.append(np.arange(-1, stem - 1))
        start, predictions = stem, 0
        for family in families:
            n = len(family.prompt_ids)
            own = n - stem
            branches = _branches(family.responses)
            s = len(branches.token_ids)
            first = start + own
            ids += [family.prompt_ids[stem:].astype(np.int64), branches.token_ids]
            positions += [np.arange(stem, n), n + branches.depth]
            of_responses = np.where(branches.parent < 0, first - 1, first + branches.parent)
            parents += [np.array([stem - 1, *range(start, first - 1)]), of_responses]
            predict.append(np.where(branches.predict < 0, first - 1, first + branches.predict))
            targets.append(branches.target)
            serves.append(predictions + branches.serves)
            if flex:
                enter += [np.arange(start, first), first + branches.enter]
                leave += [np.full(own, first + s), first + branches.leave]
            else:
                self.blocks.append(_block(n, branches, device, dtype))
                self.sizes += [own, s]
                if stem:
                    self.masks.append(behind_stem(stem, own, dtype, device))
            self.longest_tokens = max(self.longest_tokens, n + max(len(r) for r in family.responses) - 1)
            start, predictions = first + s, predictions + len(branches.target)
        if flex and stem:
            enter.insert(0, np.arange(stem))
            leave.insert(0, np.full(stem, start))

        def on_device(parts: list[NDArray[np.int64]]) -> Tensor:
            return torch.from_numpy(np.concatenate(parts).astype(np.int64)).to(device)

        self.token_ids_S = on_device(ids)
        self.positions_S = on_device(positions)
        self.parents = np.concatenate(parents).tolist()
        """Packed position of the token before each in its sequence; -1 for a prompt's first."""
        self.predict_U = on_device(predict)
        """Packed position that each different prediction comes from."""
        self.targets_U = on_device(targets)
        """The token that it predicts."""
        self.serves_M = on_device(serves)
        """The prediction of each response token, in the order of families, responses and tokens."""
        self.places_S: Tensor | None = None
        """Where what sampling gave for each token is recorded; None where the layers computed it."""
        self.tree = Tree(on_device(enter), on_device(leave)) if flex else None

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """See `attention.Layout`. Prompts attend to themselves; each response to its prompt and itself."""
        if self.tree is not None:
            return self.tree.attend(query, key, value, scaling)
        # Cut once: a slice's gradient is as large as what it was cut from, and there are two for every family.
        cut = [torch.split(x, self.sizes, dim=1) for x in (query, key, value)]
        stem = cut[0][0], cut[1][0], cut[2][0]
        parts: list[Tensor] = []
        if self.stem:
            parts.append(causal(*stem, scaling).transpose(0, 1))
        for i, block in enumerate(self.blocks):
            asked, key, value = (x[2 * i + 1] for x in cut)
            if self.stem:
                key, value = torch.cat([stem[1], key], dim=1), torch.cat([stem[2], value], dim=1)
                parts.append(masked(asked, key, value, self.masks[i], scaling))
            else:
                parts.append(causal(asked, key, value, scaling).transpose(0, 1))
            if self.sizes[2 * i + 2]:
                attend = _rectangle if block.rows else _square
                own = cut[0][2 * i + 2], cut[1][2 * i + 2], cut[2][2 * i + 2]
                parts.append(attend(block, own, (key, value), scaling))
        return torch.cat(parts)


def masked(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float) -> Tensor:
    """Attention of T tokens, query [heads, T, D], to K keys [key heads, K, D] under an additive mask [T, K]; gives
    [T, heads, D]."""
    heads, key_heads = query.shape[0], key.shape[0]
    out = F.scaled_dot_product_attention(
        fold_heads(query, key_heads).unsqueeze(0),
        key.unsqueeze(0),
        value.unsqueeze(0),
        attn_mask=mask.to(query.dtype).repeat(heads // key_heads, 1),
        scale=scaling,
    )
    return out.reshape(heads, query.shape[1], -1).transpose(0, 1)


def _square(
    block: _Block, own: tuple[Tensor, Tensor, Tensor], prompt: tuple[Tensor, Tensor], scaling: float
) -> Tensor:
    """A tree's tokens against its prompt and each other, [S, heads, D]."""
    query, key, value = own
    key, value = torch.cat([prompt[0], key], dim=1), torch.cat([prompt[1], value], dim=1)
    return masked(query, key, value, block.mask, scaling)


def _rectangle(
    block: _Block, own: tuple[Tensor, Tensor, Tensor], prompt: tuple[Tensor, Tensor], scaling: float
) -> Tensor:
    """Each response against its prompt and itself, [S, heads, D]; short ones are padded behind their end."""
    query, key, value = (_rows(x, block) for x in own)  # [rows, heads, T, D]
    heads, key_heads, longest = query.shape[1], key.shape[1], query.shape[2]
    out = F.scaled_dot_product_attention(
        fold_heads(query, key_heads),
        torch.cat([prompt[0].expand(block.rows, *prompt[0].shape), key], dim=2),
        torch.cat([prompt[1].expand(block.rows, *prompt[1].shape), value], dim=2),
        attn_mask=block.mask.to(query.dtype).repeat(heads // key_heads, 1),
        scale=scaling,
    ).reshape(block.rows, heads, longest, -1)
    flat = out.transpose(1, 2).reshape(block.rows * longest, heads, -1)
    return flat if block.scatter is None else flat[block.scatter]


def _rows(x: Tensor, block: _Block) -> Tensor:
    """[heads, tokens of all responses, D] to [rows, heads, T, D]."""
    if block.gather is None:
        return x.reshape(x.shape[0], block.rows, -1, x.shape[-1]).transpose(0, 1)
    return x[:, block.gather].transpose(0, 1)


def _block(n: int, branches: _Branches, device: torch.device, dtype: torch.dtype) -> _Block:
    """For a prompt of n tokens."""
    gather = scatter = None
    if branches.visible is not None:
        visible = branches.visible
    else:
        lengths = np.array(branches.lengths)
        longest = int(lengths.max(initial=0))
        visible = np.tri(longest, dtype=np.bool_)
        if longest and lengths.min() < longest:
            starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
            column = np.arange(longest)
            inside = column[None, :] < lengths[:, None]
            # What lies behind a response's end is never seen by it and never read back, so any token serves.
            gather = torch.from_numpy(np.where(inside, starts[:, None] + column[None, :], 0)).to(device)
            scatter = torch.from_numpy(np.flatnonzero(inside)).to(device)
    mask = torch.zeros(len(visible), n + len(visible), device=device, dtype=dtype)
    mask[:, n:].masked_fill_(torch.from_numpy(~visible).to(device), float("-inf"))
    return _Block(
        mask=mask,
        rows=len(branches.lengths),
        gather=gather,
        scatter=scatter,
    )


def pack(
    backbone: torch.nn.Module,
    families: Sequence[Family],
    dtype: torch.dtype,
    longest_tokens: int = 0,
    *,
    device: torch.device,
    flex: bool = False,
    recorded: RecordedLayers | None = None,
) -> tuple[Tensor, PackedFamilies]:
    """Run a micro-batch through the model's layers, nothing twice.

    Args:
        backbone: the model without its head, with `attention.NAME` as its attention.
        families: prompts and their responses; every response has a token.
        dtype: of the model's activations.
        longest_tokens: longest sequence to answer for, when longer ones than these are to come.
        device: where the model is.
        flex: attend by FlexAttention.
        recorded: what the layers gave while sampling, which is used when it covers all tokens.

    Returns:
        The hidden state behind each different prediction, shape [U, hidden], and the layout, which says what each
        predicts and which response tokens it serves.
    """
    packed = PackedFamilies(families, device, dtype, flex=flex)
    packed.longest_tokens = max(packed.longest_tokens, longest_tokens)
    found = None if recorded is None else recorded.find(packed.token_ids_S.tolist(), packed.parents)
    if recorded is not None and found is None:
        recorded.forget()
    packed.places_S = found
    with nullcontext() if recorded is None or found is None else recorded.answer(found):
        hidden = run_packed(backbone, packed.token_ids_S, packed.positions_S, packed)
    # index_select, since the backward pass of plain indexing adds up in an order that differs from run to run.
    return hidden.index_select(0, packed.predict_U), packed
