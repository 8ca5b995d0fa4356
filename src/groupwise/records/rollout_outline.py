"""The groups of a rollout file without their tokens: enough to rank and to list them, and quick to read."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from groupwise.records.nouns import StopReason
from groupwise.records.rollout_file import read_table

_COLUMNS = (
    "group",
    "greedy",
    "prompt_id",
    "prompt",
    "messages",
    "response",
    "reward",
    "stop_reason",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOutline:
    """The G rollouts of one prompt in a step, greedy baselines left out."""

    group: int
    """Its number in the step."""
    prompt_id: str
    """`Prompt.id`."""
    prompt: str
    """What was asked: the last turn of a chat, or the whole text."""
    responses_G: tuple[str, ...]
    """As text."""
    rewards_G: tuple[float | None, ...]
    """Total reward of each; None where there is none."""
    lengths_G: tuple[int, ...]
    """Tokens of each response."""
    truncated_G: tuple[bool, ...]
    """True where the limit of new tokens came first."""

    @property
    def known(self) -> list[float]:
        """The finite rewards."""
        return [reward for reward in self.rewards_G if reward is not None and math.isfinite(reward)]

    @property
    def mean(self) -> float:
        """Mean reward; NaN without any."""
        known = self.known
        return math.fsum(known) / len(known) if known else math.nan

    @property
    def spread(self) -> float:
        """Population std of the rewards; NaN without any."""
        known, mean = self.known, self.mean
        return math.sqrt(math.fsum((r - mean) ** 2 for r in known) / len(known)) if known else math.nan


def read_outlines(path: Path) -> list[GroupOutline]:
    """Every group of one file, in order.

    Raises:
        RunFolderError: see `rollout_file.read_rollouts`.
    """
    table = read_table(path, (*_COLUMNS, "trainable"))
    lengths = pc.list_value_length(table["trainable"]).to_pylist()
    rows = table.select([name for name in _COLUMNS if name in table.column_names]).to_pylist()
    by_group: dict[int, list[tuple[dict[str, Any], int]]] = {}
    for row, length in zip(rows, lengths, strict=True):
        if not row.get("greedy"):
            by_group.setdefault(row["group"], []).append((row, length))
    return [
        GroupOutline(
            group=number,
            prompt_id=members[0][0]["prompt_id"],
            prompt=_asked(members[0][0]),
            responses_G=tuple(row["response"] for row, _ in members),
            rewards_G=tuple(row["reward"] for row, _ in members),
            lengths_G=tuple(length for _, length in members),
            truncated_G=tuple(row["stop_reason"] == StopReason.LENGTH for row, _ in members),
        )
        for number, members in by_group.items()
    ]


def _asked(row: dict[str, Any]) -> str:
    text: str = row["prompt"]
    if row["messages"] is None:
        return text
    messages = json.loads(row["messages"])
    content = messages[-1].get("content") if messages else None
    return content if isinstance(content, str) else text
