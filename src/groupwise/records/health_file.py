"""`health.jsonl`: what went wrong in a run and where, one line of strict JSON each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.records.lines_file import LinesFile
from groupwise.records.metrics_file import spelled

FIELDS: Mapping[str, str] = {
    "step": "Batch in which it was found; the first is 1.",
    "kind": "`skipped_update`: numbers that are not finite were kept from the weights.",
    "source": "Where they came from: `sampler log-prob`, `old log-prob`, `reference log-prob`, `policy log-prob`, "
    "`advantage`, `value`, `correction`, `entropy`, `ratio overflow`, `KL overflow`, `extreme log-prob` or `gradient`.",
    "sentence": "The same for people, with what was measured.",
    "rollouts": "The tokens that it came from, at most eight: `prompt_id`, `group_index`, `token` (its place in the "
    "response, from 0) and the `value` there.",
}
"""The fields of a line."""

MOST_SHOWN = 8
"""How many offending tokens a line names at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offender:
    """A token whose number is at fault."""

    prompt_id: str
    """Of its prompt."""
    group_index: int
    """Of its rollout."""
    token: int
    """Its place in the response, from 0."""
    value: float
    """The number there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why an update was skipped."""

    source: str
    """As in the field `source`."""
    sentence: str
    """For people."""
    offenders: Sequence[Offender] = ()
    """Where; empty where no single token is at fault."""


class HealthFile(LinesFile):
    """Appends to `health.jsonl`."""

    def append(self, step: int, fault: Fault) -> None:
        """Write one line.

        Raises:
            RunFolderError: it cannot be written, for example since the disk is full.
        """
        rollouts: list[dict[str, Any]] = [
            {
                "prompt_id": each.prompt_id,
                "group_index": each.group_index,
                "token": each.token,
                "value": spelled("value", each.value),
            }
            for each in fault.offenders[:MOST_SHOWN]
        ]
        self.put(
            {
                "step": step,
                "kind": "skipped_update",
                "source": fault.source,
                "sentence": fault.sentence,
                "rollouts": rollouts,
            }
        )
