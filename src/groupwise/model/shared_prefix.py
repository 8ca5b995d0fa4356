"""Training forward with each prompt computed once: one packed row of a prompt and all of its responses.

The gradient is that of the plain computation: the prompt's keys and values receive the sum over its responses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from groupwise.model.attention import causal, fold_heads, run_packed


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A prompt and some of its responses."""

    prompt_ids: NDArray[np.int32]
    """Shape [prompt tokens]."""
    responses: Sequence[NDArray[np.int32]]
    """Token ids of each response, shape [T_i]."""

    @property
    def unique_tokens(self) -> int:
        """Tokens computed when the prompt is shared."""
        return len(self.prompt_ids) + sum(len(r) for r in self.responses)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Where one family lies in the packed row."""

    prompt: slice
    responses: slice
    gather: Tensor | None
    """Index [G, T] into the family's response tokens, or None when all are equally long."""
    scatter: Tensor | None
    """Index of each response token in the flattened [G * T]."""
    rows: int
    longest: int
    mask: Tensor
    """Additive, [T, prompt + T]: 0 where a response token may look."""


class PackedFamilies:
    """The layout of a micro-batch of families in one row: prompt, response, response, ..., next prompt, ...

    The last token of a response is an input to nothing, so it is left out of the row; the log-prob of the first
    token of each response comes from the prompt's last position.
    """

    def __init__(self, families: Sequence[Family], device: torch.device, dtype: torch.dtype) -> None:
        ids: list[NDArray[np.int32]] = []
        positions: list[NDArray[np.int64]] = []
        predict: list[NDArray[np.int64]] = []
        self.blocks: list[_Block] = []
        start = 0
        self.longest_tokens = 0
        for family in families:
            n = len(family.prompt_ids)
            inputs = [r[:-1] for r in family.responses]
            lengths = [len(x) for x in inputs]
            prompt = slice(start, start + n)
            responses = slice(start + n, start + n + sum(lengths))
            ids += [family.prompt_ids, *inputs]
            positions += [np.arange(n), *(np.arange(n, n + k) for k in lengths)]
            offset = responses.start
            for k in lengths:
                predict.append(np.concatenate([[prompt.stop - 1], np.arange(offset, offset + k)]))
                offset += k
            self.blocks.append(_block(prompt, responses, lengths, device, dtype))
            self.longest_tokens = max(self.longest_tokens, n + max(lengths, default=0))
            start = responses.stop
        self.token_ids_S = torch.from_numpy(np.concatenate(ids).astype(np.int64)).to(device)
        self.positions_S = torch.from_numpy(np.concatenate(positions).astype(np.int64)).to(device)
        self.predict_M = torch.from_numpy(np.concatenate(predict).astype(np.int64)).to(device)
        """Packed position whose logits predict each response token, in order."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """See `attention.Layout`. Prompts attend to themselves; each response to its prompt and itself."""
        parts: list[Tensor] = []
        for block in self.blocks:
            prompt_key, prompt_value = key[:, block.prompt], value[:, block.prompt]
            parts.append(causal(query[:, block.prompt], prompt_key, prompt_value, scaling).transpose(0, 1))
            if block.longest:
                parts.append(self._responses(block, query, key, value, prompt_key, prompt_value, scaling))
        return torch.cat(parts)

    def _responses(
        self,
        block: _Block,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        prompt_key: Tensor,
        prompt_value: Tensor,
        scaling: float,
    ) -> Tensor:
        own_query, own_key, own_value = (
            _rows(x[:, block.responses], block) for x in (query, key, value)
        )  # [G, heads, T, D]
        keys = torch.cat([prompt_key.expand(block.rows, *prompt_key.shape), own_key], dim=2)
        values = torch.cat([prompt_value.expand(block.rows, *prompt_value.shape), own_value], dim=2)
        heads, key_heads = query.shape[0], key.shape[0]
        out = F.scaled_dot_product_attention(
            fold_heads(own_query, key_heads),
            keys,
            values,
            attn_mask=block.mask.to(query.dtype).repeat(heads // key_heads, 1),
            scale=scaling,
        ).reshape(block.rows, heads, block.longest, -1)
        flat = out.transpose(1, 2).reshape(block.rows * block.longest, heads, -1)
        return flat if block.scatter is None else flat[block.scatter]


def _rows(x: Tensor, block: _Block) -> Tensor:
    """[heads, tokens of all responses, D] to [G, heads, T, D]; short responses are padded behind their end."""
    if block.gather is None:
        return x.reshape(x.shape[0], block.rows, block.longest, -1).transpose(0, 1)
    return x[:, block.gather].transpose(0, 1)


def _block(
    prompt: slice, responses: slice, lengths: list[int], device: torch.device, dtype: torch.dtype
) -> _Block:
    rows, longest = len(lengths), max(lengths, default=0)
    gather = scatter = None
    if longest and min(lengths) < longest:
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        column = np.arange(longest)
        inside = column[None, :] < np.array(lengths)[:, None]
        # What lies behind a response's end is never seen by it (causal) and never read back, so any token serves.
        gather = torch.from_numpy(np.where(inside, starts[:, None] + column[None, :], 0)).to(device)
        scatter = torch.from_numpy(np.flatnonzero(inside)).to(device)
    n = prompt.stop - prompt.start
    mask = torch.zeros(longest, n + longest, device=device, dtype=dtype)
    mask[:, n:].masked_fill_(
        torch.ones(longest, longest, dtype=torch.bool, device=device).triu(1), float("-inf")
    )
    return _Block(
        prompt=prompt,
        responses=responses,
        gather=gather,
        scatter=scatter,
        rows=rows,
        longest=longest,
        mask=mask,
    )


def hidden_states(
    backbone: torch.nn.Module, families: Sequence[Family], dtype: torch.dtype, longest_tokens: int = 0
) -> Tensor:
    """The hidden state that predicts each response token, prompts computed once.

    Args:
        backbone: the model without its head, with `attention.NAME` as its attention.
        families: prompts and their responses.
        dtype: of the model's activations.
        longest_tokens: longest sequence to answer for, when longer ones than these are to come.

    Returns:
        Shape [M, hidden] for the M response tokens, in the order of families, responses and tokens.
    """
    device = next(backbone.parameters()).device
    packed = PackedFamilies(families, device, dtype)
    packed.longest_tokens = max(packed.longest_tokens, longest_tokens)
    return run_packed(backbone, packed.token_ids_S, packed.positions_S, packed)[packed.predict_M]
