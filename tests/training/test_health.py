"""A real run is watched: what is found is told once, written, and may end the run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import TrainingError
from groupwise.health.watch import sentence
from groupwise.records.health_file import read_findings
from groupwise.training.loop import train
from groupwise.training.setup import Run
from groupwise.workbench.health import diagnose


def nothing_is_right(completions: list[str], **columns: Any) -> list[float]:
    return [0.0] * len(completions)


def test_dead_groups_are_told_once_and_written(tiny_run: Callable[..., Run]) -> None:
    run = tiny_run(reward=nothing_is_right, training={"steps": 7})
    said: list[str] = []
    run.recorder.watch.say = said.append
    train(run)
    # Half of the window of ten steps is there at step 5.
    events = read_findings(run.folder.health_file)
    dead = [event for event in events if event.finding.check == "dead_groups"]
    assert [(event.step, str(event.event)) for event in dead] == [(5, "begins")]
    assert said.count(sentence(dead[0].finding)) == 1
    # With rollouts of the very step to look at, all of which are wrong here.
    assert [each.why for each in dead[0].examples] == ["of a group with equal rewards"] * 2
    shown = "\n".join(diagnose(run.folder.path).lines())
    assert f"step 5, prompt {dead[0].examples[0].prompt_id}, 0 of its group" in shown
    assert not run.keeper.healthy
    # What is told afterwards, from the folder alone, is what was told in the run.
    assert diagnose(run.folder.path).events == tuple(events)


def test_a_critical_finding_may_end_the_run_with_a_checkpoint(tiny_run: Callable[..., Run]) -> None:
    run = tiny_run(reward=nothing_is_right, training={"steps": 9}, health={"stop": ["dead_groups"]})
    with pytest.raises(
        TrainingError, match=r"ended by health\.stop: critical dead_groups \(step 5\).*step 5"
    ):
        train(run)
    assert run.keeper.step == 5
    assert (run.folder.checkpoints_dir / "step-000005" / "manifest.json").is_file()
    state = run.parts["health"].state()
    assert "dead_groups" in [each["check"] for each in state["open"]]


def test_a_run_that_is_not_watched_has_no_findings(tiny_run: Callable[..., Run]) -> None:
    run = tiny_run(reward=nothing_is_right, training={"steps": 6}, health={"every_steps": None})
    train(run)
    assert not Path(run.folder.health_file).exists()
    assert run.keeper.healthy
