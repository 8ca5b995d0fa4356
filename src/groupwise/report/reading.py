"""Everything that a report needs of one run folder, read leniently: what is torn or missing becomes a note."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from groupwise.errors import RunFolderError
from groupwise.records.lines_file import read_lines
from groupwise.records.metrics_file import number_of, read_metrics
from groupwise.records.rollout_outline import GroupOutline, read_outlines
from groupwise.records.run_folder import RunFolder, read_manifest

MOST_STEPS = 500
"""Steps whose rollouts are looked at; of a longer run they are spread evenly, the first and the last among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What a configuration says, made by whoever can read one."""

    formula: str
    """The objective in words and numbers, as `groupwise explain` prints it; empty where it is not known."""
    settings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Dotted key to value and where it came from."""
    steps: int | None = None
    """Batches that were asked for; None where the run's end is not given in steps."""
    notes: tuple[str, ...] = ()
    """What could not be found out, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run folder as far as it could be read."""

    name: str
    """The folder's own name."""
    path: Path
    """The folder."""
    manifest: Mapping[str, Any]
    """manifest.json."""
    config: str
    """config.yaml as text; empty where there is none."""
    described: Described
    """What it says."""
    lines: Sequence[Mapping[str, float]]
    """metrics.jsonl, each with its `step`."""
    health: Sequence[Mapping[str, Any]]
    """health.jsonl, each with its `step`."""
    outlines: Mapping[int, Sequence[GroupOutline]]
    """The groups of the steps that were looked at, by step."""
    rollout_steps: int
    """How many steps have rollouts."""
    samples: Mapping[str, str]
    """The files of samples/ by name, in order."""
    notes: tuple[str, ...]
    """What is worth knowing of the reading itself."""

    @property
    def last_step(self) -> int:
        """Of those with metrics; 0 for none."""
        return int(max((line["step"] for line in self.lines), default=0))

    def rollout_file(self, step: int) -> Path:
        """The Parquet file of a step."""
        return RunFolder(self.path).rollout_file(step)


def read_run(path: Path, described: Described) -> RunRecord:
    """Read a run folder, finished, stopped, torn or still growing. Nothing is written to it.

    Args:
        path: the folder.
        described: what its configuration says.

    Raises:
        RunFolderError: there is no such folder, it is not one of ours, or a line in the midst of a file is damaged.
    """
    folder = RunFolder(path)
    if not path.is_dir():
        raise RunFolderError(
            f"there is no run folder {path}; `groupwise report` takes the folder that a run made"
        )
    manifest = read_manifest(folder)
    notes = list(described.notes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lines = read_metrics(folder.metrics_file) if folder.metrics_file.exists() else []
        health = read_lines(folder.health_file, _health, what="health") if folder.health_file.exists() else []
    notes += [str(warning.message) for warning in caught]
    if not lines:
        notes.append("no step is finished yet, so there are no curves")
    outlines, rollout_steps = _outlines(folder, notes)
    return RunRecord(
        name=path.resolve().name,
        path=path,
        manifest=manifest,
        config=_text(folder.config_file, notes),
        described=described,
        lines=lines,
        health=health,
        outlines=outlines,
        rollout_steps=rollout_steps,
        samples={each.name: _text(each, notes) for each in sorted(folder.samples_dir.glob("step-*"))},
        notes=tuple(notes),
    )


def evenly(items: Sequence[int], count: int) -> list[int]:
    """So many of the items, evenly spread, the first and the last among them; all of them where there are fewer."""
    if len(items) <= count:
        return list(items)
    if count == 1:
        return [items[-1]]
    return [items[math.floor(i * (len(items) - 1) / (count - 1) + 0.5)] for i in range(count)]


def _health(line: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(line.get("step"), int):
        raise ValueError("it has no step")
    finding = line.get("finding")
    if finding is not None:
        if not isinstance(finding, dict):
            raise ValueError("its finding is no object")
        for value in dict(finding.get("evidence", {})).values():
            number_of(value)
    return line


def _outlines(folder: RunFolder, notes: list[str]) -> tuple[dict[int, list[GroupOutline]], int]:
    stems = [path.stem.removeprefix("step-") for path in folder.rollouts_dir.glob("step-*.parquet")]
    steps = sorted(int(stem) for stem in stems if stem.isdecimal())
    outlines: dict[int, list[GroupOutline]] = {}
    for step in evenly(steps, MOST_STEPS):
        try:
            outlines[step] = read_outlines(folder.rollout_file(step))
        except RunFolderError as error:
            notes.append(str(error))
    if len(steps) > MOST_STEPS:
        notes.append(
            f"rollouts are shown of {MOST_STEPS} steps, spread evenly over the {len(steps)} that have any"
        )
    return outlines, len(steps)


def _text(path: Path, notes: list[str]) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        notes.append(f"{path} cannot be read: {error.strerror or error}")
        return ""
