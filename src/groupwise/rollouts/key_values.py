"""Keys and values while sampling: a prompt's once for its whole group, a response's own written in place.

What all prompts begin with is computed once for all of them.

Both objects are attention layouts (see `model/attention.py`): the model runs unmodified on packed tokens and hands
each layer's queries, keys and values to them.
"""

from __future__ import annotations

from collections.abc import Sequence

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
        self.keys[layer], self.values[layer] = self._padded(key), self._padded(value)
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

    def _padded(self, x: Tensor) -> Tensor:
        """[key heads, S, D] to [key heads, prompts, longest, D]."""
        heads, _, size = x.shape
        out = x.new_zeros(heads, len(self.slices), self.longest_tokens, size)
        out[:, :, : self.stem] = x[:, None, : self.stem]
        for i, s in enumerate(self.slices):
            out[:, i, self.stem : self.stem + s.stop - s.start] = x[:, s]
        return out


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
        if len(present) < len(self.prefill.slices):
            self.prompt_keys = {k: v[:, self.present] for k, v in self.prefill.keys.items()}
            self.prompt_values = {k: v[:, self.present] for k, v in self.prefill.values.items()}
        else:
            self.prompt_keys, self.prompt_values = self.prefill.keys, self.prefill.values

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Go on with these rows: indexes, not falling. A row given twice parts into two with the same past."""
        index = torch.from_numpy(rows).to(self.bias.device)
        for held in (self.own_keys, self.own_values):
            for layer, old in held.items():
                new = old.new_empty(len(old), len(rows), *old.shape[2:])
                new[:, :, : self.length] = old[:, :, : self.length].index_select(1, index)
                held[layer] = new
        self._arrange(self.prompt_of_row[rows])

    @property
    def positions_R(self) -> Tensor:
        """Position of the token being computed, shape [R]."""
        return self.start_of_row + (self.length - 1)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """See `attention.Layout`: each row attends to its prompt and to its own tokens so far."""
        query, key, value = self.rounded(query), self.rounded(key), self.rounded(value)
        with exactly(query.device):
            return self._attend(layer, query, key, value, scaling)

    def _attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        heads, rows, size = query.shape
        key_heads = key.shape[0]
        repeat = heads // key_heads
        if layer not in self.own_keys:
            self.own_keys[layer] = key.new_empty(key_heads, rows, self.capacity, size)
            self.own_values[layer] = value.new_empty(key_heads, rows, self.capacity, value.shape[-1])
        own_key, own_value = self.own_keys[layer], self.own_values[layer]
        own_key[:, :, self.length - 1] = key
        own_value[:, :, self.length - 1] = value
        own_key, own_value = own_key[:, :, : self.length], own_value[:, :, : self.length]
        by_row = query.view(key_heads, repeat, rows, size).transpose(1, 2)
        dtype = query.dtype
        if _has_kernel(query, value):
            out = self._fused(layer, by_row.contiguous(), own_key, own_value, scaling)
            return out.reshape(rows, heads, size)
        exact = torch.promote_types(
            dtype, torch.float32
        )  # scores and weights in half precision would cost nats
        by_row = by_row.to(exact)
        query = torch.mul(by_row, scaling, out=by_row.new_empty(by_row.shape))
        # Queries of a prompt's rows against that prompt's keys: [key heads, prompts, rows * repeat, D] x [.., D, P].
        scores = self._to_prompts(query) @ self.prompt_keys[layer].to(exact).transpose(-1, -2)
        if self.rectangle_bias is not None:
            scores += self.rectangle_bias
        own_scores = query @ own_key.to(exact).transpose(-1, -2)
        weights = torch.cat([self._to_rows(scores, repeat), own_scores], dim=-1).softmax(-1)
        width = scores.shape[-1]
        grouped = self._to_prompts(weights[..., :width]) @ self.prompt_values[layer].to(exact)
        out = self._to_rows(grouped, repeat) + weights[..., width:] @ own_value.to(exact)
        return out.to(dtype).transpose(0, 1).reshape(rows, heads, -1)  # values may be narrower than keys

    def _fused(self, layer: int, query: Tensor, own_key: Tensor, own_value: Tensor, scaling: float) -> Tensor:
        """By torch's kernel for CPUs, once over the prompts and once over the rows' own tokens: each gives the mean of
        its values and the logarithm of its weights' sum, L. The mean over both is that of the prompt, moved towards the
        own by sigmoid(L own - L prompt), the share of the weights that is own (Dao et al. 2022, FlashAttention, section
        3.1, for two blocks).

        Args:
            layer: of the prompts' keys and values.
            query: [key heads, R, repeat, D].
            own_key: [key heads, R, tokens, D].
            own_value: the same.
            scaling: of the scores.

        Returns:
            [R, key heads, repeat, D].
        """
        attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        key_heads, _, repeat, size = query.shape
        own, own_weight = attend(
            query.transpose(0, 1), own_key.transpose(0, 1), own_value.transpose(0, 1), scale=scaling
        )
        prompt, prompt_weight = attend(
            self._to_prompts(query).transpose(0, 1),
            self.prompt_keys[layer].transpose(0, 1),
            self.prompt_values[layer].transpose(0, 1),
            attn_mask=None if self.rectangle_bias is None else self.rectangle_bias[:, None],
            scale=scaling,
        )
        # Both lie in memory as [rows, repeat, key heads, D], so the prompts' fall apart into rows without a copy.
        prompt = prompt.transpose(1, 2).reshape(-1, repeat, key_heads, size)
        prompt_weight = prompt_weight.transpose(1, 2).reshape(-1, repeat, key_heads)
        if self.scatter is not None:
            prompt, prompt_weight = prompt[self.scatter], prompt_weight[self.scatter]
        part = torch.sigmoid_(own_weight.transpose(1, 2) - prompt_weight)
        return torch.lerp(prompt, own.transpose(1, 2), part[..., None]).transpose(1, 2)

    def _to_prompts(self, x: Tensor) -> Tensor:
        """[key heads, R, repeat, X] to [key heads, prompts, most * repeat, X]; no copy where all groups are alike."""
        if self.gather is not None:
            x = x.index_select(1, self.gather)
        return x.view(x.shape[0], self.prompts, self.most * x.shape[2], x.shape[3])

    def _to_rows(self, x: Tensor, repeat: int) -> Tensor:
        """And back."""
        x = x.view(x.shape[0], self.prompts * self.most, repeat, x.shape[3])
        return x if self.scatter is None else x.index_select(1, self.scatter)


def _has_kernel(query: Tensor, value: Tensor) -> bool:
    """True where torch's fused attention says the logarithm of its weights' sum and rounds nothing."""
    return (
        query.is_cpu and query.dtype in (torch.float32, torch.float64) and query.shape[-1] == value.shape[-1]
    )
