"""From what a user gives to a run that is ready to train: a new one, or one that is gone on with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from groupwise.records.run_folder import fingerprints
from groupwise.training.inputs import read_inputs
from groupwise.training.resume import check_data, open_run, refuse_without_python
from groupwise.training.setup import Run, assemble, origin_of


def resume(
    path: str | Path,
    overrides: Sequence[str] = (),
    *,
    checkpoint: str | None = None,
    rewards: Sequence[Any] = (),
    weights: Sequence[float] | None = None,
    train: Sequence[Mapping[str, Any]] | None = None,
    held_out: Sequence[Mapping[str, Any]] | None = None,
    console: Console | None = None,
) -> Run:
    """The run of a folder, in the state of its last whole checkpoint, ready to go on.

    Args:
        path: the run folder.
        overrides: settings as `key=value`, of those in `resume.MAY_CHANGE`.
        checkpoint: name of one, such as `step-000100`, in place of the last; later ones are given up.
        rewards: the reward functions that the run was started with from Python, as `read_inputs` takes them.
        weights: the same of their weights.
        train: the rows that it was given in Python.
        held_out: the same, held out.
        console: where people are told; the terminal by default.

    Raises:
        GroupwiseError: one sentence naming what is wrong, where, and the remedy; the folder is as it was.
    """
    loaded, resumed = open_run(path, overrides, checkpoint=checkpoint)
    try:
        given = [name for name, rows in (("train", train), ("held_out", held_out)) if rows is not None]
        refuse_without_python(resumed.folder, rewards=bool(rewards), rows=given)
        inputs = read_inputs(loaded, rewards=rewards, weights=weights, train=train, held_out=held_out)
        rows = {"train": inputs.train, "held_out": inputs.held_out}
        origin = origin_of(inputs.data_files, rows, inputs.rewards.from_python)
        check_data(resumed.folder, fingerprints(**origin))
        return assemble(inputs, console=console, resumed=resumed)
    except BaseException:
        resumed.held.release()
        raise
