"""Responses scored by a model in micro-batches, with gradient or without, on one rank or several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from groupwise.model.logprobs import TokenLogprobs
from groupwise.model.shared_prefix import Family
from groupwise.training.batch import (
    AnyResponse,
    MicroBatch,
    Response,
    Row,
    divide,
    families_of,
    micro_batches,
    split,
)
from groupwise.training.distributed import ALONE, Ranks
from groupwise.training.schedules import Temperature


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """How responses are scored in micro-batches: the same limits for every pass, with gradient or without."""

    scorer: TokenLogprobs
    """The model."""
    temperature: Temperature
    """Of sampling, so that policy, old and reference are of the same distribution."""
    tokens: int
    """Unique tokens per forward pass."""
    rollouts: int | None
    """Rollouts per forward pass."""
    device: torch.device
    """Where the batch goes."""
    ranks: Ranks = ALONE
    """Who share the work."""

    def share(self, rows: Sequence[AnyResponse]) -> list[AnyResponse]:
        """Those of some responses that this rank computes; see `batch.divide`."""
        return divide(rows, self.ranks.count)[self.ranks.number]

    def idle_passes(self, rows: Sequence[Response]) -> int:
        """How many passes with gradient this rank lacks to the one with most, where all have to make equally many."""
        if not self.ranks.sharded:
            return 0
        shared = self.scorer.shared
        passes = [
            sum(1 for _ in split(part, tokens=self.tokens, rollouts=self.rollouts, shared=shared))
            for part in divide(rows, self.ranks.count)
        ]
        return max(passes) - passes[self.ranks.number]

    def idle(self, row: Response) -> None:
        """A pass with gradient over one token of a response, which changes nothing."""
        family = Family(prompt_ids=row.prompt_ids, responses=[row.rollout.token_ids_T[:1]])
        with torch.enable_grad():
            logprobs, _ = self.scorer([family], temperature=self.temperature.value)
            self.scorer.backward(0.0 * logprobs.sum())

    def micro_batches(self, rows: Sequence[Row]) -> list[MicroBatch]:
        """Rows as micro-batches within the limits."""
        dtype = torch.promote_types(next(self.scorer.model.parameters()).dtype, torch.float32)
        return list(
            micro_batches(
                rows,
                tokens=self.tokens,
                rollouts=self.rollouts,
                shared=self.scorer.shared,
                device=self.device,
                dtype=dtype,
            )
        )

    def logprobs(self, batch: MicroBatch, *, reuse: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probs and entropies of the trainable tokens, shape [M] each; `reuse` as the scorer has it."""
        logprobs, entropy = self.scorer(batch.families, temperature=self.temperature.value, reuse=reuse)
        if len(batch.trainable) != len(logprobs):
            logprobs, entropy = logprobs[batch.trainable], entropy[batch.trainable]
        return logprobs, entropy

    def again(self, batch: MicroBatch) -> torch.Tensor | None:
        """The log-probs [M] that the backward pass found anew, where the forward pass took them from sampling."""
        again = self.scorer.again()
        if again is None:
            return None
        return again[batch.trainable] if len(batch.trainable) != len(again) else again


def score_responses(forward: Forward, responses: Sequence[Response]) -> list[NDArray[np.float32]]:
    """Log-probs of every token of each response without gradient, shape [T] each, in the same micro-batches.

    Every rank computes its share, and knows all of them in the end.
    """
    scored: list[NDArray[np.float32]] = []
    mine = forward.share(responses)
    model = forward.scorer.model
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), forward.scorer.gathered():
            shared = forward.scorer.shared
            for part in split(mine, tokens=forward.tokens, rollouts=forward.rollouts, shared=shared):
                logprobs, _ = forward.scorer(families_of(part), temperature=forward.temperature.value)
                ends = np.cumsum([len(r.rollout.token_ids_T) for r in part])[:-1]
                scored += np.split(logprobs.float().cpu().numpy(), ends)
    finally:
        model.train(training)
    return [one for of_rank in forward.ranks.gather(scored) for one in of_rank]
