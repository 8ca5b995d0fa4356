"""A step computed again from its records: the same numbers, and a word on each that was changed."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import groupwise
from groupwise.checkpoint.manifest import Position, write_manifest
from groupwise.errors import RunFolderError
from groupwise.records.rollout_file import read_rollouts, write_rollouts
from groupwise.workbench.replay import Replayed, _settings_of, replay
from tests.end_to_end.interrupted import HELD_OUT, KINDS, ROWS, restless, tree

EVERY = {"every_steps": 1, "every_minutes": None, "keep_last": 9}
PLAYED: dict[str, dict[str, Any]] = {
    "two passes, KL in the loss": {},
    "KL in the reward": {"objective": {"preset": "rloo", "kl": {"beta": 0.05}}},
    **KINDS,
    # So many that some are left in every step.
    "recipes": {
        **KINDS["recipes"],
        "objective": {**KINDS["recipes"]["objective"], "filter": {"max_tokens": 7}},
    },
    "products in bfloat16": {"model": {"name": "tiny", "precision": "bfloat16"}},
    "rewards with a memory": {
        "rewards": [
            {
                "name": "length_target",
                "settings": {"target": 3, "width": 2},
                "normalise": "batch",
                "smoothing": 0.7,
            }
        ]
    },
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
    evaluate = {"every_steps": 2, **sections.pop("evaluate", {}), "at_start": False}
    sections = {"checkpoint": EVERY, "evaluate": evaluate, **sections}
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
        *(pytest.param(kind, marks=pytest.mark.long) for kind in list(PLAYED)[1:]),
    ],
)
def test_nothing_differs(tmp_path: Path, kind: str) -> None:
    folder = run_in(tmp_path / "run", **PLAYED[kind])
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for step in (1, 4):
        found = replay(folder, step, rewards=[restless])
        assert said(found).endswith("no differences"), said(found)
        names = [part.name for part in found.parts]
        assert names == ["rewards", "advantages", "metrics", "log-probs", "updates"]
        assert "metrics computed, the loss" in found.parts[-1].said
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_without_the_checkpoint_only_what_the_records_say(finished: Path) -> None:
    found = replay(finished, 2, rewards=[restless])
    assert found.parts[3].said.startswith(
        "not computed, nor is the loss: that needs the checkpoint of step 1, and there are those of step "
    )
    # Rewards that draw random numbers are given others, which is what a replay is to show.
    assert "reward: " in said(found)
    assert [part.name for part in found.parts if part.differences] == ["rewards"]


def test_rewards_given_in_python_are_not_computed_without_them(finished: Path) -> None:
    found = replay(finished, 5)
    assert found.parts[0].said == "not computed: given in Python (restless)"
    assert [part.name for part in found.parts] == ["rewards", "advantages", "metrics", "log-probs", "updates"]
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


def verdict(**other: Any) -> Callable[[Any], Any]:
    """Changes the verdict of rollout 2."""

    def change(entry: Any) -> Any:
        verdicts = list(entry.group.verdicts_G)
        verdicts[2] = replace(verdicts[2], **other)
        return replace(entry, group=replace(entry.group, verdicts_G=tuple(verdicts)))

    return change


def rollout(name: str, make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Changes something of rollout 1."""

    def change(entry: Any) -> Any:
        rollouts = list(entry.group.rollouts_G)
        rollouts[1] = replace(rollouts[1], **{name: make(getattr(rollouts[1], name))})
        return replace(entry, group=replace(entry.group, rollouts_G=tuple(rollouts)))

    return change


def arrays(name: str, add: float) -> Callable[[Any], Any]:
    """Adds to the first token of rollout 3."""

    def change(entry: Any) -> Any:
        found = [array.copy() for array in getattr(entry, name)]
        found[3][0] += add
        return replace(entry, **{name: tuple(found)})

    return change


def left_out(entry: Any) -> Any:
    in_loss_G = entry.in_loss_G.copy()
    in_loss_G[0] = False
    return replace(entry, in_loss_G=in_loss_G)


def first_other(array: Any, value: Any) -> Any:
    array = array.copy()
    array[0] = value
    return array


CHANGES: dict[str, tuple[Callable[[Any], Any], set[str], str]] = {
    "a reward": (
        verdict(reward=7.5),
        {"rewards", "advantages", "metrics"},
        "group 0, rollout 2, reward: 7.5 was logged",
    ),
    "a part": (
        verdict(parts={"restless": 3.0}),
        {"rewards", "metrics"},
        "rollout 2, part restless: 3 was logged",
    ),
    "a term": (verdict(terms={"restless": 3.0}), {"rewards"}, "rollout 2, term restless: 3 was logged"),
    "an absent reward": (
        verdict(reward=None, parts={"restless": None}, terms={}, failure="lost"),
        {"rewards", "advantages", "metrics"},
        "group 0, rollout 2, reward: none was logged",
    ),
    "an advantage": (
        arrays("advantages_GT", 0.5),
        {"advantages", "metrics", "updates"},
        "group 0, rollout 3, advantage of token 0: ",
    ),
    "what is in the loss": (
        left_out,
        {"advantages", "metrics", "updates"},
        "group 0, rollout 0, in the loss: False was logged, True computed",
    ),
    "an old log-prob": (
        arrays("old_logprobs_GT", 0.25),
        {"log-probs", "updates"},
        "group 0, rollout 3, old log-prob of token 0: ",
    ),
    "a reference's log-prob": (
        arrays("reference_logprobs_GT", 0.25),
        {"log-probs", "updates"},
        "group 0, rollout 3, reference log-prob of token 0: ",
    ),
    "a sampler's log-prob": (
        rollout("sampler_logprobs_T", lambda array: first_other(array, -0.5)),
        {"log-probs", "updates"},
        "group 0, rollout 1, sampler log-prob of token 0: -0.500000 was logged",
    ),
    "a token": (
        rollout("token_ids_T", lambda array: first_other(array, 7)),
        {"rewards", "log-probs", "updates"},
        "group 0, rollout 1, text: its tokens say something else than was logged",
    ),
}


@pytest.fixture(scope="module", params=["full", pytest.param("lora", marks=pytest.mark.long)])
def two_steps(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps of four updates each."""
    sections = {"lora": {"rank": 4, "dropout": 0.2}} if request.param == "lora" else {}
    return run_in(tmp_path_factory.mktemp("runs") / "run", training={"steps": 2}, **sections)


@pytest.mark.parametrize("what", CHANGES)
def test_what_was_changed_is_found(two_steps: Path, tmp_path: Path, what: str) -> None:
    change, parts, says = CHANGES[what]
    folder = Path(shutil.copytree(two_steps, tmp_path / "run"))
    changed(folder, 2, change)
    found = replay(folder, 2, rewards=[restless])
    differing = {part.name for part in found.parts if part.differences}
    # Some changes move a mean over the batch, some do not, and all that was named above has to be told.
    assert parts <= differing <= parts | {"metrics"}, said(found)
    assert says in said(found)
    assert said(found).endswith("differ from what was logged")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("reward/mean", "metrics"),
        ("policy/loss", "updates"),
        ("grad/norm", "updates"),
        ("length/max", "metrics"),
    ],
)
def test_a_changed_metric_is_found(two_steps: Path, tmp_path: Path, name: str, part: str) -> None:
    folder = Path(shutil.copytree(two_steps, tmp_path / "run"))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    (line,) = (line for line in lines if line["step"] == 2)
    line[name] += 0.01
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = replay(folder, 2, rewards=[restless])
    assert [each.name for each in found.parts if each.differences] == [part], said(found)
    assert f"{name}: " in said(found)
    assert found.differences == 1


def test_other_weights_in_the_checkpoint_are_found(two_steps: Path, tmp_path: Path) -> None:
    """As another run's would be, whole in themselves."""
    folder = Path(shutil.copytree(two_steps, tmp_path / "run"))
    place = folder / "checkpoints" / "step-000001"
    name = "adapter/adapter_model.safetensors" if (place / "adapter").is_dir() else "weights.safetensors"
    weights = load_file(place / name)
    save_file({key: 1.5 * tensor for key, tensor in weights.items()}, place / name)
    (place / "manifest.json").unlink()
    write_manifest(place, version=None, metric=None, healthy=True, position=Position(1))
    found = replay(folder, 2, rewards=[restless])
    assert {"log-probs", "updates"} == {part.name for part in found.parts if part.differences}, said(found)


def test_a_damaged_checkpoint_is_told(two_steps: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(two_steps, tmp_path / "run"))
    place = folder / "checkpoints" / "step-000001" / "state.pt"
    place.write_bytes(place.read_bytes()[:-1])
    found = replay(folder, 2, rewards=[restless])
    assert "state.pt is damaged" in found.parts[-1].said
    assert found.parts[-1].name == "log-probs"


def test_steps_and_rollouts_that_are_not_there(two_steps: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(two_steps, tmp_path / "run"))
    with pytest.raises(RunFolderError, match="has no step 3; it has finished the steps 1 to 2"):
        replay(folder, 3)
    (folder / "rollouts" / "step-000002.parquet").unlink()
    with pytest.raises(RunFolderError, match=r"there is no rollout file .*save_rollouts"):
        replay(folder, 2)


def test_a_resumed_run_with_other_settings(tmp_path: Path) -> None:
    """Each step is computed with the settings that were in force."""
    folder = run_in(tmp_path / "run", training={"steps": 2, "max_grad_norm": 1.0, "weight_decay": 0.0})
    words = (
        "training.steps=4",
        "training.max_grad_norm=0.01",
        "training.weight_decay=0.5",
        "training.learning_rate=9e-3",
    )
    groupwise.train(resume=folder, overrides=words, rewards=[restless], train=ROWS, held_out=HELD_OUT)
    groupwise.train(
        resume=folder, overrides=("training.steps=5",), rewards=[restless], train=ROWS, held_out=HELD_OUT
    )
    for step in (2, 3, 5):
        found = replay(folder, step, rewards=[restless])
        assert said(found).endswith("no differences"), said(found)
    # The test can fail: with the settings of the last life the update is another.
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "resumed": []}))
    found = replay(folder, 2, rewards=[restless])
    assert [part.name for part in found.parts if part.differences] == ["updates"]


def test_settings_of_each_step() -> None:
    def life(at: str, **before: Any) -> dict[str, Any]:
        return {
            "at": at,
            "changed": {f"training.{key}": {"before": b, "now": 1} for key, b in before.items()},
        }

    # The configuration is that of the last life.
    lives = [life("step-000004", steps=0), life("step-000006-update-0002", steps=0.5), life("step-000002")]
    assert _settings_of(lives, 2) == (["training.steps=0"], None)
    assert _settings_of(lives, 3) == ([], None)
    assert _settings_of(lives[:2], 4) == (["training.steps=0"], None)
    assert _settings_of(lives[:2], 5) == (["training.steps=0.5"], None)
    assert _settings_of(lives[:2], 7) == ([], "another training.steps")
    assert _settings_of(lives[:2], 8) == ([], None)
    assert _settings_of([], 1) == ([], None)


def test_rows_with_a_prompt_of_their_own_and_a_context_that_is_full(tmp_path: Path) -> None:
    """What the records hold is replayed as it is: never rendered, encoded or cut again."""
    from groupwise.model.tiny import write_tiny

    def spoken(completions: list[Any], **columns: Any) -> list[float]:
        return restless([messages[0]["content"] for messages in completions])

    write_tiny(tmp_path / "model", context_tokens=48)
    rows = [{"question": f"Give word number {i} " + "of many " * 20, "prompt": "x"} for i in range(3)]
    groupwise.train(
        tree(
            tmp_path / "run",
            model={"name": str(tmp_path / "model")},
            prompts={"columns": {"prompt": "question"}, "chat": True, "too_long": "truncate"},
            checkpoint=EVERY,
            evaluate={"every_steps": None},
            training={"steps": 2},
        ),
        rewards=[spoken],
        train=rows,
    )
    found = replay(tmp_path / "run", 2, rewards=[spoken])
    assert said(found).endswith("no differences"), said(found)


def test_rewards_along_a_response(tmp_path: Path) -> None:
    def dense(completion_ids: list[list[int]], **columns: Any) -> list[list[float]]:
        return [[0.25 * (token % 3) for token in ids] for ids in completion_ids]

    folder = run_in(tmp_path / "run", dense, training={"steps": 1})
    found = replay(folder, 1, rewards=[dense])
    assert said(found).endswith("no differences"), said(found)

    def moved(entry: Any) -> Any:
        earned = entry.group.verdicts_G[2].token_rewards
        return verdict(token_rewards=(earned[0] + 1, *earned[1:]))(entry)

    changed(folder, 1, moved)
    assert "group 0, rollout 2, reward of token 0: " in said(replay(folder, 1, rewards=[dense]))
