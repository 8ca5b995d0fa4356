"""A batch while its updates are made: a run may be stopped between two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from groupwise.errors import CheckpointError
from groupwise.health.metric import Metric, combine, from_plain, plain
from groupwise.records import Prompt, TrainingGroup


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchInUse:
    """The rollouts of a step, and how far they have been used."""

    groups: tuple[TrainingGroup, ...]
    """With everything the updates need."""
    metrics: Mapping[str, Metric]
    """Of sampling and scoring."""
    updates: Mapping[str, Metric] = field(default_factory=dict)
    """Of the updates made so far."""
    done: int = 0
    """How many these are."""

    def after(self, update: Mapping[str, Metric]) -> BatchInUse:
        """The batch after one more update with such metrics."""
        return replace(self, updates=combine([self.updates, update]), done=self.done + 1)

    def state(self) -> dict[str, Any]:
        """Everything but the rollouts, as plain data."""
        return {"metrics": plain(self.metrics), "updates": plain(self.updates), "done": self.done}

    @classmethod
    def of(
        cls, state: Mapping[str, Any], groups: Sequence[TrainingGroup], prompts: Sequence[Prompt]
    ) -> BatchInUse:
        """What `state` was given, with rollouts read from a checkpoint.

        Args:
            state: as `state` gives it.
            groups: with prompts that know their id and tokens only.
            prompts: of the run, which take their place.

        Raises:
            CheckpointError: the run has not these prompts.
        """
        by_id = {prompt.id: prompt for prompt in prompts}
        own = []
        for entry in groups:
            prompt = by_id.get(entry.group.prompt.id)
            if prompt is None or prompt.token_ids.tobytes() != entry.group.prompt.token_ids.tobytes():
                raise CheckpointError(
                    f"the checkpoint's half-used batch answers the prompt {entry.group.prompt.id}, which this run "
                    "has not, or with another text; resume with the data that the run was started with"
                )
            own.append(replace(entry, group=replace(entry.group, prompt=prompt)))
        return cls(
            groups=tuple(own),
            metrics=from_plain(state["metrics"]),
            updates=from_plain(state["updates"]),
            done=state["done"],
        )
