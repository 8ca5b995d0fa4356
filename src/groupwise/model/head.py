"""From hidden states to log-probs and entropies, without ever holding the logits of a whole batch.

The head, the temperature, the log-softmax, the gather and the entropy are one operation, done for a chunk of rows at
a time with a backward pass of its own, which computes each chunk's logits again where sampling has not kept them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from groupwise.model.recorded import Known

CHUNK_ELEMENTS = 1 << 24
"""Logits held at once: 16.8 million, 64 MB in float32."""
_LOOKED_AT = 64
"""Log-probs at least that the backward pass finds again where it has the exponentials of sampling."""
_AMISS = 1e-3
"""Nats by which a log-prob of sampling and its exponentials differ when they are not of the same token."""


class _HeadLogprobs(torch.autograd.Function):
    """log softmax(hidden W^T / temperature) at the targets, and the entropy, in chunks of rows."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_MD: Tensor,
        weight_VD: Tensor,
        targets_M: Tensor,
        temperature: float,
        rows: int,
        dtype: torch.dtype | None,
        known: Known | None,
    ) -> tuple[Tensor, Tensor]:
        ctx.temperature, ctx.rows, ctx.dtype, ctx.known = temperature, rows, dtype, known
        if known is not None:
            ctx.save_for_backward(hidden_MD, weight_VD, targets_M, known.normalizer, known.entropy)
            return known.logprobs.clone(), known.entropy.clone()
        exact = torch.promote_types(hidden_MD.dtype, torch.float32)
        logprobs_M = hidden_MD.new_empty(len(targets_M), dtype=exact)
        entropy_M = torch.empty_like(logprobs_M)
        normalizer_M = torch.empty_like(logprobs_M)
        logits, weights = _Reused(), _Reused()
        for start in range(0, len(targets_M), rows):
            part = slice(start, start + rows)
            logits_RV = head_logits(hidden_MD[part], weight_VD, temperature, dtype, into=logits)
            top_R = logits_RV.amax(1)
            shifted_RV = logits_RV.sub_(top_R[:, None])
            chosen_R = shifted_RV.gather(1, targets_M[part, None])[:, 0]
            weight_RV = torch.exp(shifted_RV, out=weights.like(shifted_RV))
            total_R = weight_RV.sum(1)
            log_total_R = total_R.log()
            normalizer_M[part] = top_R + log_total_R
            logprobs_M[part] = chosen_R - log_total_R
            # H = log Z - sum p l, both in units where the largest logit is 0.
            entropy_M[part] = log_total_R - torch.linalg.vecdot(weight_RV, shifted_RV) / total_R
        ctx.save_for_backward(hidden_MD, weight_VD, targets_M, normalizer_M, entropy_M)
        return logprobs_M, entropy_M

    @staticmethod
    def backward(ctx: Any, grad_logprobs_M: Tensor, grad_entropy_M: Tensor) -> tuple[Tensor | None, ...]:
        hidden_MD, weight_VD, targets_M, normalizer_M, entropy_M = ctx.saved_tensors
        temperature, dtype, known = ctx.temperature, ctx.dtype, ctx.known
        grad_dtype = dtype or hidden_MD.dtype
        cast_VD = weight_VD.to(grad_dtype)
        grad_hidden = torch.zeros_like(hidden_MD) if ctx.needs_input_grad[0] else None
        grad_weight = torch.zeros_like(weight_VD) if ctx.needs_input_grad[1] else None
        with_entropy = bool((grad_entropy_M != 0).any())
        # A token without gradient adds exactly nothing, so its logits are not computed again.
        live = ((grad_logprobs_M != 0) | (grad_entropy_M != 0)).nonzero()[:, 0]
        held = known is not None and len(known.masses) > 0 and len(live) > 0 and not with_entropy
        if known is not None:
            known.again = torch.full_like(normalizer_M, math.nan)
            if held:  # spread over all, so that no prompt and no position is left out
                index = live[:: max(1, len(live) // _LOOKED_AT)]
                known.again[index] = (
                    head_logits(hidden_MD[index], weight_VD, temperature, dtype)
                    .log_softmax(1)
                    .gather(1, targets_M[index, None])[:, 0]
                )
        logits, probs = _Reused(), _Reused()
        rows = ctx.rows if with_entropy else 2 * ctx.rows  # two chunks' memory, as in the forward pass
        for index in torch.split(live, rows):
            hidden_RD = hidden_MD[index]
            grad_R = grad_logprobs_M[index]
            # d logprob / d logit_j = 1[j = target] - p_j;  d H / d logit_j = -p_j (log p_j + H)
            if known is not None and held:
                probs_RV = known.mass(index, into=logits.of(len(index), len(weight_VD), hidden_RD))
                total_R = probs_RV.sum(1)
                share_R = grad_R / total_R
                found_R = (probs_RV.gather(1, targets_M[index, None])[:, 0] / total_R).log()
                off_R = ~((found_R - known.logprobs[index]).abs() <= _AMISS)
                assert known.again is not None
                known.again[index[off_R]] = found_R[off_R]
            else:
                share_R = grad_R
                logits_RV = head_logits(hidden_RD, weight_VD, temperature, dtype, into=logits)
                logprobs_RV = logits_RV.sub_(normalizer_M[index, None])
                chosen_R = logprobs_RV.gather(1, targets_M[index, None])[:, 0]
                kept_RV = probs.like(logprobs_RV) if with_entropy else logprobs_RV
                probs_RV = torch.exp(logprobs_RV, out=kept_RV)
                if known is not None and known.again is not None:
                    known.again[index] = chosen_R - probs_RV.sum(1).log()
            if with_entropy:
                scale_RV = (
                    logprobs_RV.add_(entropy_M[index, None])
                    .mul_(grad_entropy_M[index, None])
                    .add_(grad_R[:, None])
                )
                grad_logits_RV = probs_RV.mul_(scale_RV).neg_()
            else:
                grad_logits_RV = probs_RV.mul_(-share_R[:, None])
            grad_logits_RV.scatter_add_(1, targets_M[index, None], grad_R[:, None])
            if temperature != 1:
                grad_logits_RV.div_(temperature)
            grad_logits_RV = grad_logits_RV.to(grad_dtype)
            if grad_hidden is not None:
                grad_hidden[index] = (grad_logits_RV @ cast_VD).to(hidden_MD.dtype)
            if grad_weight is not None and dtype is None:
                grad_weight.addmm_(grad_logits_RV.T, hidden_RD)
            elif grad_weight is not None:
                grad_weight.add_(grad_logits_RV.T @ hidden_RD.to(dtype))
        if known is not None:
            known.masses = ()
        return grad_hidden, grad_weight, None, None, None, None, None


class _Reused:
    """Memory for one chunk's numbers after the other's: a new piece for each costs more than what is done in it."""

    def __init__(self) -> None:
        self._whole: Tensor | None = None

    def like(self, example: Tensor) -> Tensor:
        """A tensor of this shape, type and device, whose numbers are to be overwritten."""
        return self.of(example.shape[0], example.shape[1], example)

    def of(self, rows: int, columns: int, example: Tensor) -> Tensor:
        """The same, of another shape; the first is the largest."""
        if self._whole is None or len(self._whole) < rows:
            self._whole = example.new_empty(rows, columns)
        return self._whole[:rows]


def head_logits(
    hidden_RD: Tensor,
    weight_VD: Tensor,
    temperature: float = 1.0,
    dtype: torch.dtype | None = None,
    *,
    into: _Reused | None = None,
) -> Tensor:
    """Temperature-scaled logits in float32 (float64 for a float64 model), shape [R, V].

    With a `dtype` a GPU takes inputs rounded to it and adds up in float32. A CPU's product would round its result as
    well, which the softmax does not bear, so there the product is that of the weights' own precision.
    """
    if dtype is not None and hidden_RD.is_cuda:
        logits_RV = torch.mm(hidden_RD.to(dtype), weight_VD.to(dtype).T, out_dtype=torch.float32)
    elif into is not None:
        out_RV = into.of(len(hidden_RD), len(weight_VD), hidden_RD)
        logits_RV = torch.mm(hidden_RD, weight_VD.T, out=out_RV)
    else:
        logits_RV = hidden_RD @ weight_VD.T
    if logits_RV.dtype not in (torch.float32, torch.float64):
        logits_RV = logits_RV.float()
    return logits_RV if temperature == 1.0 else logits_RV.div_(temperature)


def head_logprobs(
    hidden_MD: Tensor,
    weight_VD: Tensor,
    targets_M: Tensor,
    *,
    temperature: float,
    rows: int | None = None,
    dtype: torch.dtype | None = None,
    known: Known | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-prob of each target and entropy at it, under softmax(hidden W^T / temperature), with gradient.

    Args:
        hidden_MD: hidden states that predict the targets, shape [M, D].
        weight_VD: the head's weight, shape [V, D].
        targets_M: token ids, shape [M].
        temperature: divides the logits.
        rows: rows of logits held at once; chosen from `CHUNK_ELEMENTS` by default. It changes nothing else.
        dtype: rounds the inputs of the backward pass's products, and on a GPU of the forward pass's; None rounds none.
        known: what sampling has computed of the very same; it is given back, and the forward pass makes no logits.

    Returns:
        Log-probs and entropies in nats, shape [M] each, in float32 (float64 for float64 input).
    """
    rows = rows or max(1, CHUNK_ELEMENTS // weight_VD.shape[0])
    hidden_MD = hidden_MD.to(weight_VD.dtype)
    logprobs_M, entropy_M = _HeadLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden_MD, weight_VD, targets_M, temperature, rows, dtype, known
    )
    return logprobs_M, entropy_M
