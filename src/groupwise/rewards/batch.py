"""What rewards are asked about: rollouts without the records around them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerState:
    """What a reward that names `trainer_state` gets; TRL spells its fields so."""

    global_step: int
    """Steps finished before the batch that is scored."""
    max_steps: int | None
    """Steps of the whole run; None where there is no such number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What rewards are asked about, without the records around it. All sequences are of length N."""

    prompts: Sequence[Any]
    """Text, or a list of messages, each."""
    completions: Sequence[Any]
    """Text, or a list with the assistant's message, each."""
    completion_ids: Sequence[Sequence[int]] | None
    """Token ids, each, the stop token included; None where they are not known."""
    stop_reasons: Sequence[str] | None
    """`stop` or `length`, each; None where they are not known."""
    columns: Mapping[str, Sequence[Any]]
    """Per data column, one value per rollout."""
    group_ids: Sequence[str] | None = None
    """One text per rollout, equal for those of a group; None where equal prompts make a group."""
    places: Sequence[str] | None = None
    """Where the row of each prompt is found, for messages: its id, or file and line; None where that is not known."""

    def groups(self) -> list[str]:
        """`group_ids`, or what they are by equal prompts."""
        if self.group_ids is not None:
            return list(self.group_ids)
        seen: dict[str, str] = {}
        keys = [json.dumps(prompt, sort_keys=True, default=repr) for prompt in self.prompts]
        return [seen.setdefault(key, str(len(seen))) for key in keys]

    def arguments(self, rows: Sequence[int], groups: Sequence[str], state: TrainerState) -> dict[str, Any]:
        """Everything that a function may be given for some rows, by name, aside from the data's columns.

        Lists and messages are new at each call, so that no reward can change what another sees.

        Args:
            rows: which rollouts.
            groups: as `groups()` gave them.
            state: how far the run is.
        """
        given: dict[str, Any] = {
            "prompts": [_fresh(self.prompts[i]) for i in rows],
            "completions": [_fresh(self.completions[i]) for i in rows],
            "group_ids": [groups[i] for i in rows],
            "trainer_state": state,
            # Filled in where the call is made, which may be another process.
            "log_metric": None,
            "log_extra": None,
        }
        if self.completion_ids is not None:
            given["completion_ids"] = [list(self.completion_ids[i]) for i in rows]
        if self.stop_reasons is not None:
            given["stop_reasons"] = [self.stop_reasons[i] for i in rows]
        return given


def _fresh(text_or_messages: Any) -> Any:
    if isinstance(text_or_messages, str):
        return text_or_messages
    return [dict(message) for message in text_or_messages]
