"""`groupwise health` on runs that were really made, finished or not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from groupwise import registry
from groupwise.config.health import CHECKS
from tests.cli.conftest import Said


@pytest.fixture
def dead(project: Path, groupwise: Callable[..., Said]) -> Path:
    """A run of six steps in which no response is ever right."""
    (project / "reward.py").write_text(
        "def letters(completions, **columns):\n    return [0.0] * len(completions)\n"
    )
    said = groupwise(
        "train", "config.yaml", "training.steps=6", "prompts.held_out=null", "run.save_model=false"
    )
    assert said.code == 0
    return project / "run"


def test_dead_groups_are_found_and_named(dead: Path, groupwise: Callable[..., Said]) -> None:
    said = groupwise("health", "run")
    assert said.code == 1, "a critical finding holds"
    # Half of the window of ten steps is there at step 5, and every group is dead.
    assert (
        "critical  dead_groups, since step 5: 100% of the groups have equal rewards, most all wrong"
        in said.out
    )
    assert "too hard for the policy" in said.out
    events = [json.loads(line) for line in groupwise("health", "run", "--json").out.splitlines()]
    found = next(event for event in events if event["finding"]["check"] == "dead_groups")
    assert (found["step"], found["event"], found["finding"]["kind"]) == (5, "begins", "all_wrong")
    assert found["finding"]["evidence"]["reward/zero_spread_fraction"] == 1.0


def test_the_folder_of_a_run_that_goes_on(dead: Path, groupwise: Callable[..., Said]) -> None:
    metrics = dead / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(lines[:3]) + lines[3][:40])  # the fourth line is being written
    said = groupwise("health", "run")
    assert said.out.startswith(f"run: 3 steps, {len(registry.names(CHECKS))} checks\n")
    assert "line 4 was cut short" in said.out


@pytest.mark.parametrize("path", ["nowhere", "config.yaml", "."])
def test_what_is_no_run_is_one_sentence(project: Path, groupwise: Callable[..., Said], path: str) -> None:
    said = groupwise("health", path)
    assert said.code == 2
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1


def test_what_is_said_of_a_check_is_printed(dead: Path, groupwise: Callable[..., Said]) -> None:
    assert "  more      groupwise health --about dead_groups\n" in groupwise("health", "run").out
    said = groupwise("health", "--about", "dead_groups")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[:2] == ["dead_groups", ""]
    assert "To confirm: `reward/zero_spread_fraction`" in said.out
    assert "4. A larger `rollout.group_size`" in said.out
    assert "##" not in said.out
    assert "entropy_collapse" not in said.out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--about", "dead_group"), "there is no such check of groupwise's own; did you mean 'dead_groups'?"),
        (("--about", "zzz"), "there are dead_groups, entropy_collapse"),
        (("--about", ""), "there are dead_groups, entropy_collapse"),
        ((), "name a run folder or a log to look at, or a check with --about"),
        (("run", "--about", "dead_groups"), "one of the two"),
    ],
)
def test_one_thing_is_looked_at(words: tuple[str, ...], why: str, groupwise: Callable[..., Said]) -> None:
    said = groupwise("health", *words)
    assert said.code == 2
    assert why in said.err
