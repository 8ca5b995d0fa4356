"""Whether the frozen reference is still what it was: its log-probs of fixed tokens, compared with the first ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from groupwise.errors import CheckpointError
from groupwise.health.metric import Largest, Metric
from groupwise.model.logprobs import TokenLogprobs
from groupwise.model.shared_prefix import Family
from groupwise.records import Prompt
from groupwise.training.forward import Forward

_PROMPTS, _TOKENS = 8, 64


class ReferenceProbe:
    """The first tokens of the first prompts, scored by the reference at temperature 1.

    What was measured first is part of a checkpoint, so that a run that goes on is compared with its own beginning.
    """

    def __init__(
        self,
        reference: Forward | None,
        weights: Callable[[], AbstractContextManager[None]] | None,
        prompts: Sequence[Prompt],
        *,
        every_steps: int | None,
    ) -> None:
        """Take the parts; nothing is measured yet.

        Args:
            reference: scores with the reference; None without one.
            weights: context in which it computes with the reference's weights.
            prompts: of the run, of which the first are taken.
            every_steps: measured at step 1 and at every multiple; None for never.
        """
        self._scorer = None if reference is None else reference.scorer
        self._weights, self._every = weights, every_steps
        self._families = [
            Family(prompt_ids=p.token_ids[:1], responses=[p.token_ids[1:_TOKENS]])
            for p in prompts[:_PROMPTS]
            if len(p.token_ids) > 1
        ]
        self._first_M: NDArray[np.float32] | None = None

    def measure(self, step: int) -> dict[str, Metric]:
        """The largest change of a token's log-prob since the first measurement, when it is due at a step."""
        if self._scorer is None or self._weights is None or self._every is None or not self._families:
            return {}
        if step != 1 and step % self._every:
            return {}
        now_M = self._logprobs(self._scorer, self._weights)
        if self._first_M is None:
            self._first_M = now_M
        return {"reference/drift_abs_max": Largest.of(np.abs(now_M - self._first_M))}

    def _logprobs(
        self, scorer: TokenLogprobs, weights: Callable[[], AbstractContextManager[None]]
    ) -> NDArray[np.float32]:
        training = scorer.model.training
        scorer.model.eval()
        try:
            with torch.no_grad(), weights(), scorer.gathered():
                found_M, _ = scorer(self._families, temperature=1.0)
        finally:
            scorer.model.train(training)
        logprobs_M: NDArray[np.float32] = found_M.float().cpu().numpy()
        return logprobs_M

    def state(self) -> dict[str, Any]:
        """See `checkpoint.state.Stateful`: what was measured first."""
        return {"first": None if self._first_M is None else self._first_M.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `checkpoint.state.Stateful`.

        Raises:
            CheckpointError: it is of other prompts.
        """
        first_M = state.get("first")
        count = sum(len(family.responses[0]) for family in self._families)
        if first_M is not None and len(first_M) != count:
            raise CheckpointError(
                f"the checkpoint's probe of the reference has {len(first_M)} tokens, and this run's {count}; resume "
                "with the data that the run was started with"
            )
        self._first_M = first_M
