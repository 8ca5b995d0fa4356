"""A step computed again from its records: the same numbers, and a word on each that was changed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import groupwise
from groupwise.errors import RunFolderError
from groupwise.records.rollout_file import read_rollouts, write_rollouts
from groupwise.workbench.replay import Replayed, replay
from tests.end_to_end.interrupted import HELD_OUT, ROWS, restless, tree

EVERY = {"every_steps": 1, "every_minutes": None, "keep_last": 9}
KINDS: dict[str, dict[str, Any]] = {
    "two passes, KL in the loss": {},
    "KL in the reward": {"objective": {"preset": "rloo", "kl": {"beta": 0.05}}},
    "lora with dropout": {"lora": {"rank": 4, "dropout": 0.2}},
    "critic": {"objective": {"preset": "ppo", "kl": {"beta": 0.05}}, "critic": {"learning_rate": 1e-3}},
    "greedy baseline": {"objective": {"preset": "remax", "kl": {"beta": 0.05}}},
    "truncated sampling, epochs": {"rollout": {"top_p": 0.9}, "training": {"steps": None, "epochs": 1}},
    "moving beta and temperature": {
        "objective": {
            "kl": {"beta": 0.05, "controller": {"name": "proportional", "target": 0.1, "gain": 0.5}}
        },
        "rollout": {"temperature_schedule": {"final": 0.8, "steps": 4}},
    },
}


def run_in(folder: Path, reward: Callable[..., Any] = restless, **sections: Any) -> Path:
    # An evaluation between the first checkpoint and the first step would draw random numbers too.
    sections = {"checkpoint": EVERY, "evaluate": {"every_steps": 2, "at_start": False}, **sections}
    groupwise.train(tree(folder, **sections), rewards=[reward], train=ROWS, held_out=HELD_OUT)
    return folder


def said(found: Replayed) -> str:
    return "\n".join(found.lines())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of which some checkpoints are left, with a reward that draws random numbers."""
    return run_in(tmp_path_factory.mktemp("runs") / "run", checkpoint={**EVERY, "keep_last": 2})


@pytest.mark.parametrize(
    "kind",
    [
        "two passes, KL in the loss",
        *(pytest.param(kind, marks=pytest.mark.long) for kind in list(KINDS)[1:]),
    ],
)
def test_nothing_differs(tmp_path: Path, kind: str) -> None:
    folder = run_in(tmp_path / "run", **KINDS[kind])
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for step in (1, 4):
        found = replay(folder, step, rewards=[restless])
        assert said(found).endswith("no differences"), said(found)
        names = [part.name for part in found.parts]
        assert names == ["rewards", "advantages", "log-probs", "updates"]
        assert "metrics computed, the loss" in found.parts[3].said
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_without_the_checkpoint_only_what_the_records_say(finished: Path) -> None:
    found = replay(finished, 2, rewards=[restless])
    assert found.parts[2].said.startswith(
        "not computed, nor is the loss: that needs the checkpoint of step 1, and there are those of step "
    )
    # Rewards that draw random numbers are given others, which is what a replay is to show.
    assert "reward: " in said(found)
    assert [part.name for part in found.parts if part.differences] == ["rewards"]


def test_rewards_given_in_python_are_not_computed_without_them(finished: Path) -> None:
    found = replay(finished, 5)
    assert found.parts[0].said == "not computed: given in Python (restless)"
    assert [part.name for part in found.parts] == ["rewards", "advantages", "log-probs", "updates"]
    assert found.differences == 0, said(found)


def test_one_group(finished: Path) -> None:
    found = replay(finished, 5, group=1, rewards=[restless])
    assert found.rollouts == 4
    assert found.parts[0].said == "4 rewards computed"
    assert found.differences == 0, said(found)
    for group in (2, -1):
        with pytest.raises(RunFolderError, match=f"has the groups 0 to 1, and no group {group}"):
            replay(finished, 5, group=group)


def changed(folder: Path, step: int, change: Callable[[Any], Any]) -> None:
    path = folder / f"rollouts/step-{step:06d}.parquet"
    groups = read_rollouts(path)
    write_rollouts(path, [change(groups[0]), *groups[1:]], step=step)


def other_reward(entry: Any) -> Any:
    verdicts = list(entry.group.verdicts_G)
    verdicts[2] = replace(verdicts[2], reward=7.5)
    return replace(entry, group=replace(entry.group, verdicts_G=tuple(verdicts)))


def other_advantage(entry: Any) -> Any:
    arrays = [array.copy() for array in entry.advantages_GT]
    arrays[1][:] += 0.5
    return replace(entry, advantages_GT=tuple(arrays))


def other_logprob(entry: Any) -> Any:
    arrays = [array.copy() for array in entry.old_logprobs_GT]
    arrays[3][0] += 0.25
    return replace(entry, old_logprobs_GT=tuple(arrays))


@pytest.mark.parametrize(
    ("change", "parts", "says"),
    [
        (other_reward, {"rewards", "advantages"}, "group 0, rollout 2, reward: 7.5 was logged"),
        (other_advantage, {"advantages", "updates"}, "group 0, rollout 1, advantage of token 0: "),
        (other_logprob, {"log-probs", "updates"}, "group 0, rollout 3, old log-prob of token 0: "),
    ],
)
def test_what_was_changed_is_found(
    tmp_path: Path, change: Callable[[Any], Any], parts: set[str], says: str
) -> None:
    folder = run_in(tmp_path / "run", training={"steps": 2})
    changed(folder, 2, change)
    found = replay(folder, 2, rewards=[restless])
    assert {part.name for part in found.parts if part.differences} == parts, said(found)
    assert says in said(found)
    assert said(found).endswith("differ from what was logged")
