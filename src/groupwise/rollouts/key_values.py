"""Keys and values while sampling: a prompt's once for its whole group, a response's own written in place.

What all prompts begin with is computed once for all of them.

Both objects are attention layouts (see `model/attention.py`): the model runs unmodified on packed tokens and hands
each layer's queries, keys and values to them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.model.attention import causal
from groupwise.model.precision import exactly
from groupwise.model.shared_prefix import behind_stem, masked, stem_of


class Prefill:
    """Runs prompts side by side in one packed row and keeps their keys and values."""

    def __init__(
        self,
        prompts: Sequence[NDArray[np.int32]],
        device: torch.device,
        precision: torch.dtype | None = None,
    ) -> None:
        """Lay the prompts out.

        Args:
            prompts: token ids.
            device: where the model is.
            precision: that the trainer's attention rounds queries, keys and values to; None for none.
        """
        self.precision = precision
        self.stem = stem = stem_of(prompts)
        own = [len(p) - stem for p in prompts]
        ends = stem + np.cumsum(own)
        self.slices = [slice(int(e) - n, int(e)) for e, n in zip(ends, own, strict=True)]
        """Where each prompt's own tokens lie, behind the stem that all share."""
        self.longest_tokens = stem + max(own)
        ids = [prompts[0][:stem], *(p[stem:] for p in prompts)]
        positions = [np.arange(stem), *(stem + np.arange(n) for n in own)]
        self.token_ids_S = torch.from_numpy(np.concatenate(ids).astype(np.int64)).to(device)
        self.positions_S = torch.from_numpy(np.concatenate(positions)).to(device)
        self.parents = [
            *range(-1, stem - 1),
            *(before for s in self.slices for before in (stem - 1, *range(s.start, s.stop - 1))),
        ]
        """Packed position of the token before each; -1 for a first."""
        self.last_P = torch.from_numpy(ends - 1).to(device)
        """Packed position of each prompt's last token."""
        self._masks: dict[int, Tensor] = {}
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """See `attention.Layout`: each prompt attends to itself."""
        query, key, value = self.rounded(query), self.rounded(key), self.rounded(value)
        self.keys[layer], self.values[layer] = self._padded(key, tokens_last=True), self._padded(value)
        if not self.stem:
            parts = [
                causal(query[:, s], key[:, s], value[:, s], scaling).transpose(0, 1) for s in self.slices
            ]
            return torch.cat(parts)
        n = self.stem
        parts = [causal(query[:, :n], key[:, :n], value[:, :n], scaling).transpose(0, 1)]
        for i, s in enumerate(self.slices):
            own = s.stop - s.start
            if own not in self._masks:
                self._masks[own] = behind_stem(n, own, query.dtype, query.device)
            keys, values = (x[layer][:, i, : n + own] for x in (self.keys, self.values))
            parts.append(masked(query[:, s], keys, values, self._masks[own], scaling))
        return torch.cat(parts)

    def rounded(self, x: Tensor) -> Tensor:
        """In the precision that the trainer's attention takes it."""
        return x if self.precision is None else x.to(self.precision)

    def _padded(self, x: Tensor, *, tokens_last: bool = False) -> Tensor:
        """[key heads, S, D] to [key heads, prompts, longest, D], lying in memory with the tokens last if so said."""
        heads, _, size = x.shape
        if tokens_last:  # as the product with a few queries reads keys: twice as fast
            out = x.new_zeros(heads, len(self.slices), size, self.longest_tokens).transpose(-1, -2)
        else:
            out = x.new_zeros(heads, len(self.slices), self.longest_tokens, size)
        out[:, :, : self.stem] = x[:, None, : self.stem]
        for i, s in enumerate(self.slices):
            out[:, i, self.stem : self.stem + s.stop - s.start] = x[:, s]
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """One layer's keys and values, and how its products read them. Keys have their tokens last."""

    own_key: Tensor
    """[key heads, R, D, capacity]."""
    own_value: Tensor
    """[key heads, R, capacity, D]."""
    flat_key: Tensor
    """The same memory, [key heads * R, D, capacity]."""
    flat_value: Tensor
    prompt_key: Tensor
    """[key heads * prompts, D, longest]."""
    prompt_value: Tensor
    """[key heads * prompts, longest, D]."""


class Decode:
    """One new token for each of R rows, every row at the same distance from its prompt's end."""

    def __init__(self, prefill: Prefill, prompt_of_row: NDArray[np.int64], capacity: int) -> None:
        """Start with every row at its first token.

        Args:
            prefill: has run.
            prompt_of_row: index of each row's prompt, rising, shape [R].
            capacity: tokens a row can hold.
        """
        self.prefill = prefill
        self.rounded = prefill.rounded
        self.capacity = capacity
        self.length = 0
        """Tokens held per row, the one being computed included."""
        device = prefill.token_ids_S.device
        self.prompt_lengths = torch.tensor(
            [prefill.stem + s.stop - s.start for s in prefill.slices], device=device
        )
        self.longest_tokens = prefill.longest_tokens + capacity
        columns = torch.arange(prefill.longest_tokens, device=device)
        pad = columns[None, :] >= self.prompt_lengths[:, None]
        first = next(iter(prefill.keys.values()))
        self.bias = torch.zeros(pad.shape, device=device, dtype=first.dtype).masked_fill_(pad, float("-inf"))
        self.ragged = bool(pad.any())
        self.own_keys: dict[int, Tensor] = {}
        self.own_values: dict[int, Tensor] = {}
        self.exact = torch.promote_types(first.dtype, torch.float32)
        self._memory: dict[int, Tensor] = {}
        self._rooms: dict[int, Tensor] = {}
        self._arrange(prompt_of_row)

    def _arrange(self, prompt_of_row: NDArray[np.int64]) -> None:
        """Rows of a prompt side by side in a rectangle [prompts, most rows of one], so that one product serves all."""
        self.prompt_of_row = prompt_of_row
        present, counts = np.unique(prompt_of_row, return_counts=True)
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        column = np.arange(counts.max())
        inside = column[None, :] < counts[:, None]
        device = self.bias.device
        self.prompts, self.most = inside.shape
        self.gather = self.scatter = None
        if not inside.all():
            gather = np.where(inside, starts[:, None] + column[None, :], 0)
            self.gather = torch.from_numpy(gather.reshape(-1)).to(device)
            self.scatter = torch.from_numpy(np.flatnonzero(inside)).to(device)
        self.present = torch.from_numpy(present).to(device)
        self.start_of_row = self.prompt_lengths[torch.from_numpy(prompt_of_row).to(device)]
        self.rectangle_bias = self.bias[self.present][:, None, :] if self.ragged else None
        self._held: dict[int, _Held] = {}

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Go on with these rows: indexes, not falling. A row given twice parts into two with the same past."""
        index = torch.from_numpy(rows).to(self.bias.device)
        for held, dim in ((self.own_keys, 3), (self.own_values, 2)):
            for layer, old in held.items():
                new = old.new_empty(len(old), len(rows), *old.shape[2:])
                moved = old.narrow(dim, 0, self.length).index_select(1, index)
                held[layer] = new
                new.narrow(dim, 0, self.length).copy_(moved)
        self._arrange(self.prompt_of_row[rows])

    @property
    def positions_R(self) -> Tensor:
        """Position of the token being computed, shape [R]."""
        return self.start_of_row + (self.length - 1)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """See `attention.Layout`: each row attends to its prompt and to its own tokens so far."""
        query, key, value = self.rounded(query), self.rounded(key), self.rounded(value)
        if query.dtype is self.exact:
            return self._attend(layer, query, key, value, scaling)
        with exactly(query.device):
            return self._attend(layer, query, key, value, scaling)

    def _attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        heads, rows, size = query.shape
        key_heads, repeat, tokens = key.shape[0], heads // key.shape[0], self.length
        held = self._held.get(layer) or self._hold(layer, key, value)
        held.own_key[..., tokens - 1] = key
        held.own_value[:, :, tokens - 1] = value
        by_row = query.view(key_heads, repeat, rows, size).transpose(1, 2)
        scaled = torch.mul(by_row, scaling, out=query.new_empty(by_row.shape, dtype=self.exact))
        # A prompt's rows in one product: [key heads * prompts, most rows * repeat, D] x [.., D, P], and each row's own.
        scores = self._product(0, self._to_prompts(scaled), held.prompt_key)
        if self.rectangle_bias is not None:
            scores.view(key_heads, self.prompts, -1, scores.shape[-1]).add_(self.rectangle_bias)
        own_scores = self._product(1, scaled.view(-1, repeat, size), held.flat_key[..., :tokens])
        width = scores.shape[-1]
        every = self._room(2, (len(own_scores), repeat, width + tokens))
        torch.cat([self._to_rows(scores, repeat), own_scores], -1, out=every)
        weights = torch.softmax(every, -1, out=self._room(0, every.shape))
        by_prompt = self._to_prompts(weights.view(key_heads, rows, repeat, -1))[..., :width]
        mixed = self._to_rows(self._product(1, by_prompt, held.prompt_value), repeat)
        own = self._in_exact(held.flat_value[:, :tokens])
        out = torch.baddbmm(mixed, weights[..., width:], own).view(key_heads, rows, repeat, -1)
        # Values may be narrower than keys.
        return out.to(query.dtype).transpose(0, 1).reshape(rows, heads, -1)

    def _hold(self, layer: int, key: Tensor, value: Tensor) -> _Held:
        """Room for a layer's own keys and values, or what there is already, with the prompts' as they stand now."""
        if layer not in self.own_keys:
            (key_heads, rows, size), of_value = key.shape, value.shape[-1]
            self.own_keys[layer] = key.new_empty(key_heads, rows, size, self.capacity)
            self.own_values[layer] = value.new_empty(key_heads, rows, self.capacity, of_value)
        prompt_key, prompt_value = self.prefill.keys[layer].transpose(-1, -2), self.prefill.values[layer]
        if self.prompts < len(self.prefill.slices):
            prompt_key, prompt_value = prompt_key[:, self.present], prompt_value[:, self.present]
        self._held[layer] = held = _Held(
            prompt_key=prompt_key.flatten(0, 1),
            prompt_value=prompt_value.flatten(0, 1),
            own_key=self.own_keys[layer],
            own_value=self.own_values[layer],
            flat_key=self.own_keys[layer].flatten(0, 1),
            flat_value=self.own_values[layer].flatten(0, 1),
        )
        return held

    def _in_exact(self, x: Tensor) -> Tensor:
        """Scores and weights in half precision would cost nats."""
        return x if x.dtype is self.exact else x.to(self.exact)

    def _product(self, room: int, x: Tensor, y: Tensor) -> Tensor:
        """x @ y for batches. Either may be part of a larger tensor, which `@` would copy first."""
        out = self._room(room, (*x.shape[:2], y.shape[-1]))
        return torch.bmm(x, self._in_exact(y), out=out)

    def _room(self, which: int, shape: tuple[int, ...]) -> Tensor:
        """Memory for what is needed until the next use of the same room: fresh pages would cost more than the sums."""
        room = self._rooms.get(which)
        if room is None or room.shape != shape:
            size = math.prod(shape)
            if which not in self._memory or self._memory[which].numel() < size:
                self._memory[which] = torch.empty(size, dtype=self.exact, device=self.bias.device)
            self._rooms[which] = room = self._memory[which][:size].view(shape)
        return room

    def _to_prompts(self, x: Tensor) -> Tensor:
        """[key heads, R, repeat, X] to [key heads * prompts, most * repeat, X]; no copy where all groups are alike."""
        if self.gather is not None:
            x = x.index_select(1, self.gather)
        return x.view(x.shape[0] * self.prompts, self.most * x.shape[2], x.shape[3])

    def _to_rows(self, x: Tensor, repeat: int) -> Tensor:
        """And back to [key heads * R, repeat, X]."""
        if self.scatter is None:
            return x.view(-1, repeat, x.shape[-1])
        x = x.view(-1, self.prompts * self.most, repeat, x.shape[-1])
        return x.index_select(1, self.scatter).flatten(0, 1)
