"""Going on with a run: from its folder to one that is ready to train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from groupwise.config import LoadedConfig
from groupwise.records.run_folder import fingerprints
from groupwise.training.inputs import read_inputs
from groupwise.training.resume import Resumed, check_data, refuse_without_python
from groupwise.training.setup import Run, assemble


def resume(
    loaded: LoadedConfig,
    resumed: Resumed,
    *,
    rewards: Sequence[Any] = (),
    weights: Sequence[float] | None = None,
    train: Sequence[Mapping[str, Any]] | None = None,
    held_out: Sequence[Mapping[str, Any]] | None = None,
    console: Console | None = None,
) -> Run:
    """The run of a folder in the state of its checkpoint, ready to go on.

    Args:
        loaded: its configuration, as `resume.open_run` gives it.
        resumed: the same of the run.
        rewards: the reward functions that the run was started with from Python, as `read_inputs` takes them.
        weights: the same of their weights.
        train: the rows that it was given in Python.
        held_out: the same, held out.
        console: where people are told; the terminal by default.

    Raises:
        GroupwiseError: one sentence naming what is wrong, where, and the remedy; the folder is as it was.
    """
    with resumed.given_up_on_error():
        given = [name for name, rows in (("train", train), ("held_out", held_out)) if rows is not None]
        refuse_without_python(resumed.folder, rewards=bool(rewards), rows=given)
        inputs = read_inputs(loaded, rewards=rewards, weights=weights, train=train, held_out=held_out)
        check_data(resumed.folder, fingerprints(**inputs.origin))
        return assemble(inputs, console=console, resumed=resumed)
