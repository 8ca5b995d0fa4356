"""The batch as rows, and its division into mini-batches and micro-batches.

What divides the loss is decided here, once, over the whole optimiser batch: each row carries the weight of one of its
tokens, so micro-batches only add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.model.shared_prefix import Family
from groupwise.records import Rollout, TrainingGroup


class Response(Protocol):
    """A rollout behind its prompt; neighbours that share the prompt's array are of one group."""

    @property
    def prompt_ids(self) -> NDArray[np.int32]:
        """The prompt's tokens."""
        ...

    @property
    def rollout(self) -> Rollout:
        """The response."""
        ...


AnyResponse = TypeVar("AnyResponse", bound=Response)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Row:
    """One rollout in the loss."""

    prompt_ids: NDArray[np.int32]
    """Its prompt's tokens; rows of one group share the array."""
    rollout: Rollout
    """Tokens and mask."""
    advantages_T: NDArray[np.float64]
    """Shape [T]; what is not trained is not looked at."""
    weight: float
    """Of one trainable token in the optimiser batch; 0 until `weighted`."""
    old_logprobs_T: NDArray[np.float32]
    """Shape [T]."""
    reference_logprobs_T: NDArray[np.float32] | None
    """Shape [T]; None without a reference."""
    correction_T: NDArray[np.float32] | None
    """Importance weight from sampler to old policy; None for 1."""
    values_T: NDArray[np.float32] | None = None
    """What the critic expected when the batch began; None without a critic."""
    value_targets_T: NDArray[np.float32] | None = None
    """What the critic is to learn; None without a critic."""

    @property
    def trainable_tokens(self) -> int:
        """How many tokens enter the loss."""
        return int(self.rollout.trainable_T.sum())

    @property
    def has_advantage(self) -> bool:
        """True when some trained token's advantage is not 0, so that its surrogate has a gradient."""
        return bool(self.advantages_T[self.rollout.trainable_T].any())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MicroBatch:
    """What one forward pass takes. Arrays have one entry per trainable token, M of them."""

    families: list[Family]
    """Prompts and the responses behind them."""
    trainable: Tensor
    """Index of the M trainable tokens among all response tokens."""
    advantages_M: Tensor
    """Of each token."""
    weights_M: Tensor
    """Weight in the loss of the optimiser batch."""
    old_logprobs_M: Tensor
    """Nats, under the policy that began the batch."""
    sampler_logprobs_M: Tensor
    """Nats, under the distribution drawn from."""
    reference_logprobs_M: Tensor | None
    """Nats, under the reference; None without one."""
    correction_M: Tensor | None
    """Importance weights from sampler to old policy; None for 1."""
    rollout_M: Tensor
    """Which rollout of the micro-batch each token is of, from 0."""
    rollouts: int
    """How many rollouts these tokens are of."""


def rows_of(
    groups: Sequence[TrainingGroup],
    correction: Callable[[Rollout, NDArray[np.float32]], NDArray[np.float32]] | None,
    *,
    reference: bool = True,
) -> list[Row]:
    """The rollouts in the loss, group by group.

    Args:
        groups: the batch.
        correction: importance weights [T] of a rollout given its old log-probs; None when sampler and old are one.
        reference: the reference's log-probs go along, where there are any.
    """
    rows = []
    for training in groups:
        for i, rollout in enumerate(training.group.rollouts_G):
            if not training.in_loss_G[i] or not rollout.trainable_T.any():
                continue
            old_T = training.old_logprobs_GT[i]
            referred = training.reference_logprobs_GT if reference else None
            rows.append(
                Row(
                    prompt_ids=training.group.prompt.token_ids,
                    rollout=rollout,
                    advantages_T=training.advantages_GT[i],
                    weight=0.0,
                    old_logprobs_T=old_T,
                    reference_logprobs_T=None if referred is None else referred[i],
                    correction_T=None if correction is None else correction(rollout, old_T),
                    values_T=None if training.values_GT is None else training.values_GT[i],
                    value_targets_T=None
                    if training.value_targets_GT is None
                    else training.value_targets_GT[i],
                )
            )
    return rows


def mini_batches(rows: Sequence[Row], count: int) -> list[list[Row]]:
    """`count` optimiser batches of neighbouring rows, as equal in number as can be; none is empty."""
    return [[rows[i] for i in part] for part in np.array_split(np.arange(len(rows)), count) if len(part)]


def weighted(rows: Sequence[Row], aggregate: Callable[[NDArray[np.int64]], NDArray[np.float64]]) -> list[Row]:
    """Rows of one optimiser batch with their weights. Every row counts in the divisor, computed or not."""
    weights_N = aggregate(np.array([row.trainable_tokens for row in rows], dtype=np.int64))
    return [replace(row, weight=float(weight)) for row, weight in zip(rows, weights_N, strict=True)]


def micro_batches(
    rows: Sequence[Row],
    *,
    tokens: int,
    rollouts: int | None,
    shared: bool,
    device: torch.device,
    dtype: torch.dtype,
) -> Iterator[MicroBatch]:
    """Rows in order, as many at a time as the budgets of tokens and rollouts allow; see `split`."""
    for part in split(rows, tokens=tokens, rollouts=rollouts, shared=shared):
        yield assemble(part, device=device, dtype=dtype)


def split(
    rows: Sequence[AnyResponse], *, tokens: int, rollouts: int | None, shared: bool
) -> Iterator[list[AnyResponse]]:
    """Rows in order, in parts within the budgets. A single row larger than the budget is a part of its own.

    Args:
        rows: in order; those of one prompt side by side.
        tokens: per part.
        rollouts: per part; None for no limit.
        shared: neighbours of one prompt bring it once; else each brings its own and is padded to the longest.
    """
    part: list[AnyResponse] = []
    held = longest = 0
    for row in rows:
        alone = len(row.prompt_ids) + len(row.rollout.token_ids_T)
        if shared:
            same_prompt = bool(part) and part[-1].prompt_ids is row.prompt_ids
            total = held + (len(row.rollout.token_ids_T) if same_prompt else alone)
        else:
            longest = max(longest, alone)
            total = (len(part) + 1) * longest
        if part and (total > tokens or len(part) == rollouts):
            yield part
            part, total, longest = [], alone, alone
        part.append(row)
        held = total
    if part:
        yield part


def divide(rows: Sequence[AnyResponse], count: int) -> list[list[AnyResponse]]:
    """`count` parts of neighbouring rows, whole groups, as alike in tokens as they can be; some may be empty.

    A group goes where its middle falls when all tokens are laid in a row and cut into equal lengths.

    Args:
        rows: in order; those of one prompt side by side.
        count: parts.
    """
    parts: list[list[AnyResponse]] = [[] for _ in range(count)]
    groups: list[list[AnyResponse]] = []
    for row in rows:
        if not groups or groups[-1][-1].prompt_ids is not row.prompt_ids:
            groups.append([])
        groups[-1].append(row)
    sizes = [len(g[0].prompt_ids) + sum(len(row.rollout.token_ids_T) for row in g) for g in groups]
    total, before = sum(sizes), 0
    for group, size in zip(groups, sizes, strict=True):
        parts[(2 * before + size) * count // (2 * total)] += group
        before += size
    return parts


def families_of(rows: Sequence[Response]) -> list[Family]:
    """Neighbouring rows of one prompt as a family."""
    families: list[Family] = []
    start = 0
    for i in range(1, len(rows) + 1):
        if i == len(rows) or rows[i].prompt_ids is not rows[start].prompt_ids:
            responses = [row.rollout.token_ids_T for row in rows[start:i]]
            families.append(Family(prompt_ids=rows[start].prompt_ids, responses=responses))
            start = i
    return families


def assemble(rows: Sequence[Row], *, device: torch.device, dtype: torch.dtype) -> MicroBatch:
    """Tensors of one micro-batch."""
    masks = [row.rollout.trainable_T for row in rows]
    counts = [int(mask.sum()) for mask in masks]

    def gathered(arrays: Sequence[NDArray[Any] | None]) -> Tensor | None:
        if any(array is None for array in arrays):
            return None
        picked = [array[mask] for array, mask in zip(arrays, masks, strict=True) if array is not None]
        return torch.from_numpy(np.concatenate(picked)).to(device=device, dtype=dtype)

    weights_M = np.repeat(np.array([row.weight for row in rows], dtype=np.float64), counts)
    advantages_M = gathered([row.advantages_T for row in rows])
    old_M = gathered([row.old_logprobs_T for row in rows])
    sampler_M = gathered([row.rollout.sampler_logprobs_T for row in rows])
    assert advantages_M is not None
    assert old_M is not None
    assert sampler_M is not None
    return MicroBatch(
        families=families_of(rows),
        trainable=torch.from_numpy(np.flatnonzero(np.concatenate(masks))).to(device),
        advantages_M=advantages_M,
        weights_M=torch.from_numpy(weights_M).to(device=device, dtype=dtype),
        old_logprobs_M=old_M,
        sampler_logprobs_M=sampler_M,
        reference_logprobs_M=gathered([row.reference_logprobs_T for row in rows]),
        correction_M=gathered([row.correction_T for row in rows]),
        rollout_M=torch.from_numpy(np.repeat(np.arange(len(rows)), counts)).to(device),
        rollouts=len(rows),
    )
