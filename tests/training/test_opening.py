from pathlib import Path

import pytest

from groupwise.config.checkpoint import CheckpointConfig
from groupwise.records.run_folder import RunFolder
from groupwise.training.opening import interruption


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "a checkpoint is written every 500 steps or 10 minutes, and at Ctrl-C and at the end; "),
        ({"every_steps": None}, "written every 10 minutes, and at Ctrl-C"),
        ({"every_minutes": None, "every_steps": 20}, "written every 20 steps, and at Ctrl-C"),
        ({"every_minutes": 0.5}, "written every 500 steps or 0.5 minutes, and at Ctrl-C"),
        ({"every_minutes": None, "every_steps": None}, "written only at Ctrl-C and at the end"),
    ],
)
def test_the_start_says_what_an_interruption_costs(given: dict[str, float | None], says: str) -> None:
    folder = RunFolder(Path.cwd() / "runs" / "first")
    said = interruption(CheckpointConfig(**given), folder, from_python=False)
    assert says in said
    assert said.endswith("after an interruption `groupwise train --resume runs/first` goes on")


def test_what_was_started_from_python_goes_on_from_there() -> None:
    folder = RunFolder(Path.cwd() / "runs" / "first")
    said = interruption(CheckpointConfig(), folder, from_python=True)
    assert said.endswith("`groupwise.train(resume='runs/first', ...)` goes on")


def test_without_checkpoints_it_says_so() -> None:
    said = interruption(CheckpointConfig(save=False), RunFolder(Path("run")), from_python=False)
    assert (
        said == "no checkpoints are written (checkpoint.save is false), so a run that is interrupted is lost"
    )
