"""Going on with a run gives what never stopping would have given."""

import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

import groupwise
from groupwise.checkpoint.save import saved_checkpoints
from groupwise.checkpoint.weights import trained_weights
from groupwise.config import load
from groupwise.config.keys import known_keys
from groupwise.errors import CheckpointError, ConfigError, RunFolderError
from groupwise.records.rollout_file import read_rollouts
from groupwise.records.run_folder import RunFolder, lock
from groupwise.training import loop, setup, start
from groupwise.training.inputs import read_inputs
from groupwise.training.loop import Result
from groupwise.training.resume import MAY_CHANGE, open_run
from tests.config.test_load import OTHER
from tests.end_to_end.interrupted import HELD_OUT, KINDS, ROWS, differing, left_behind, restless, tree

NO_MATTER = ("run.dir", "run.base", "run.overwrite")
VARIANTS: dict[str, dict[str, Any]] = {
    "full": {},
    "no reference": {"objective": {"kl": {"beta": 0.0}}},
    "trainer's log-probs": {"rollout": {"top_p": 0.9}},
    **KINDS,
}


class Power:
    """A reward that fails at one call, as a machine does."""

    def __init__(self, calls: int) -> None:
        self.left = calls
        self.__name__ = "restless"

    def __call__(self, completions: list[str], **columns: Any) -> list[float]:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return restless(completions)


def train(folder: Path, reward: Callable[..., Any] = restless, **sections: Any) -> None:
    groupwise.train(tree(folder, **sections), rewards=[reward], train=ROWS, held_out=HELD_OUT)


def resume(folder: Path, *words: str, reward: Callable[..., Any] = restless) -> Result:
    return groupwise.train(resume=folder, overrides=words, rewards=[reward], train=ROWS, held_out=HELD_OUT)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """What a run that nobody stopped leaves behind: `whole(**sections)`, made once."""
    made: dict[str, dict[str, Any]] = {}

    def left(**sections: Any) -> dict[str, Any]:
        key = repr(sections)
        if key not in made:
            folder = tmp_path_factory.mktemp("whole") / "run"
            train(folder, **sections)
            made[key] = left_behind(folder)
        return made[key]

    return left


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    """Puts a run that stopped at so many calls of its reward into a folder: `stopped(folder, calls, **sections)`."""
    made: dict[str, Path] = {}

    def put(folder: Path, calls: int, **sections: Any) -> None:
        key = repr((calls, sections))
        if key not in made:
            made[key] = tmp_path_factory.mktemp("stopped") / "run"
            with pytest.raises(KeyboardInterrupt):
                train(made[key], reward=Power(calls), **sections)
        shutil.copytree(made[key], folder, symlinks=True)

    return put


@pytest.mark.parametrize(
    "variant",
    [
        "full",
        "lora",
        "recipes",
        pytest.param("no reference", marks=pytest.mark.long),
        pytest.param("trainer's log-probs", marks=pytest.mark.long),
        pytest.param("critic", marks=pytest.mark.long),
        pytest.param("greedy baseline", marks=pytest.mark.long),
    ],
)
def test_stopped_anywhere_and_gone_on_with_it_is_the_same_run(
    whole: Callable[..., dict[str, Any]], tmp_path: Path, variant: str
) -> None:
    sections = VARIANTS[variant]
    expected = whole(**sections)
    assert len(expected) > 10
    folder = tmp_path / "stopped"
    # Nine scorings: one evaluation before, five batches, evaluations after steps 2, 4 and 5.
    with pytest.raises(KeyboardInterrupt):
        train(folder, reward=Power(3), **sections)
    for calls in (2, 3):
        with pytest.raises(KeyboardInterrupt):
            resume(folder, reward=Power(calls))
    result = resume(folder)
    assert differing(left_behind(folder), expected) == []
    assert [line["step"] for line in result.metrics] == [0, 1, 2, 3, 4, 5]


def test_a_curriculum_with_redraws_goes_on_exactly_when_it_is_stopped_between_draws(tmp_path: Path) -> None:
    sections: dict[str, Any] = {
        "prompts": {"curriculum": {"difficulty": [0.4, 1.0], "steps": 4, "column": "easy", "again_after": 2}},
        "rollout": {"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 4, "max_redraws": 3},
        "evaluate": {"every_steps": None},
    }
    rows = [{**row, "easy": row["n"] / 7} for row in ROWS]
    calls: list[int] = []

    def coin(limit: int) -> Callable[..., Any]:
        def flip(completions: list[str], **columns: Any) -> list[float]:
            calls.append(1)
            if len(calls) == limit:
                raise KeyboardInterrupt
            return [float(len(text) % 2) for text in completions]

        return flip

    def begin(folder: Path, limit: int) -> None:
        calls.clear()
        groupwise.train(tree(folder, **sections), rewards=[coin(limit)], train=rows)

    begin(tmp_path / "whole", 0)
    scorings = len(calls)
    assert scorings > 6  # five steps, some of which drew again
    expected = left_behind(tmp_path / "whole")
    for limit in range(2, scorings, 3):
        folder = tmp_path / f"stopped{limit}"
        with pytest.raises(KeyboardInterrupt):
            begin(folder, limit)
        calls.clear()
        groupwise.train(resume=folder, rewards=[coin(0)], train=rows)
        assert differing(left_behind(folder), expected) == []


def test_a_finished_run_is_lengthened_as_if_it_had_always_been_longer(tmp_path: Path) -> None:
    plain: dict[str, Any] = {"training": {"schedule": "constant"}, "evaluate": {"at_end": False}}
    train(tmp_path / "long", **{**plain, "training": {"schedule": "constant", "steps": 7}})
    train(tmp_path / "short", **plain)
    before = left_behind(tmp_path / "short")
    resume(tmp_path / "short")  # nothing is left to do
    assert differing(left_behind(tmp_path / "short"), before) == []
    resume(tmp_path / "short", "training.steps=7")
    assert differing(left_behind(tmp_path / "short"), left_behind(tmp_path / "long")) == []
    # The change is in the configuration, and the manifest remembers how it was.
    assert load(tmp_path / "short" / "config.yaml").config.training.steps == 7
    resumed = json.loads((tmp_path / "short" / "manifest.json").read_text())["resumed"]
    assert [entry["at"] for entry in resumed] == ["step-000005", "step-000005"]
    assert resumed[1]["changed"] == {"training.steps": {"before": 5, "now": 7}}


def test_every_setting_that_is_not_listed_is_refused_by_name(
    stopped: Callable[..., None], tmp_path: Path
) -> None:
    stopped(tmp_path / "run", 3)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    own = load(tmp_path / "run" / "config.yaml").config
    tried = 0
    for key, (value, others) in OTHER.items():
        section = key.split(".")[0]
        if (
            others
            or section in ("lora", "reference", "rewards", "dpo", "critic")
            or key in NO_MATTER
            or key.startswith(("prompts.curriculum.", "rollout.confidence.", "objective.filter."))
            or "schedule." in key
        ):
            continue
        if key in MAY_CHANGE or f"{section}.*" in MAY_CHANGE:
            continue
        try:
            other = load(tmp_path / "run" / "config.yaml", [f"{key}={json.dumps(value)}"]).config
        except ConfigError:
            continue  # wrong in this run anyway
        if other == own:
            continue
        with pytest.raises(ConfigError) as raised:
            resume(tmp_path / "run", f"{key}={json.dumps(value)}")
        assert "cannot be changed on resuming" in str(raised.value)
        assert key.split(".")[-1] in str(raised.value) or key in str(raised.value)
        tried += 1
    assert tried > 15
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_the_documented_list_is_the_one_that_acts() -> None:
    page = (Path(__file__).parents[2] / "docs" / "checkpoints.md").read_text(encoding="utf-8")
    table = page.split("<!-- may change -->")[1].split("<!-- end -->")[0]
    listed = dict(re.findall(r"^\| `(.+?)` \| (.+?) \|$", table, flags=re.MULTILINE))
    assert listed == dict(MAY_CHANGE)
    sections = {key.rsplit(".", n)[0] for key in known_keys() for n in range(1, key.count(".") + 1)}
    assert all(key in known_keys() or (key.endswith(".*") and key[:-2] in sections) for key in MAY_CHANGE)


def test_a_damaged_checkpoint_is_set_aside_and_the_run_ends_the_same(
    whole: Callable[..., dict[str, Any]], stopped: Callable[..., None], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    stopped(folder, 6)
    last = saved_checkpoints(folder / "checkpoints")[-1][1]
    (last / "state.pt").write_bytes((last / "state.pt").read_bytes()[:-1])
    resume(folder)
    assert differing(left_behind(folder), whole()) == []
    assert (folder / "checkpoints" / f"{last.name}.damaged" / "state.pt").is_file()


def test_a_named_checkpoint_gives_up_what_came_after_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(folder, checkpoint={"every_steps": 1, "every_minutes": None, "keep_last": 9})
    expected = left_behind(folder)
    loaded, resumed = open_run(folder, checkpoint="step-000002")
    run = start.resume(loaded, resumed, rewards=[restless], train=ROWS, held_out=HELD_OUT)
    # The best is of a future that is given up as well.
    assert [position.step for position, _ in saved_checkpoints(folder / "checkpoints")] == [0, 1, 2]
    assert [line["step"] for line in run.recorder.lines()] == [0, 1, 2]
    assert sorted(path.stem for path in (folder / "rollouts").iterdir()) == ["step-000001", "step-000002"]
    loop.train(run)
    assert differing(left_behind(folder), expected) == []


@pytest.mark.parametrize("cut", [1, 2, 20, 300])
def test_a_torn_line_of_metrics_is_cut_off(
    whole: Callable[..., dict[str, Any]], stopped: Callable[..., None], tmp_path: Path, cut: int
) -> None:
    folder = tmp_path / "run"
    stopped(folder, 5, checkpoint={"every_steps": 1, "every_minutes": None})
    line = json.dumps({"step": 3, "reward/mean": 0.25, "text": "x" * 400})
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(line[:-cut])
    (folder / "rollouts" / ".step-000003.parquet.17.partial").write_bytes(b"half")
    (folder / "rollouts" / "step-000004.parquet").write_bytes(b"of a later life")
    resume(folder)
    assert differing(left_behind(folder), whole()) == []


def test_metrics_that_lost_lines_are_told(stopped: Callable[..., None], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stopped(folder, 6)
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(RunFolderError, match=r"fewer than the \d+ it had"):
        resume(folder)


def test_every_row_once_an_epoch_over_two_ends_of_epochs(
    stopped: Callable[..., None], tmp_path: Path
) -> None:
    # Case g03: 7 rows, 2 a step, 4 steps an epoch; stopped in step 3 of the first, gone on with to the third.
    sections: dict[str, Any] = {
        "checkpoint": {"every_steps": 1, "every_minutes": None},
        "training": {"steps": None, "epochs": 3},
        "evaluate": {"at_end": False, "every_steps": None},
    }
    folder = tmp_path / "run"
    stopped(folder, 4, **sections)  # one evaluation before, then three batches
    resume(folder)
    seen = [
        [
            entry.group.prompt.columns["n"]
            for entry in read_rollouts(folder / f"rollouts/step-{step:06d}.parquet")
        ]
        for step in range(1, 13)
    ]
    for epoch in (seen[:4], seen[4:8], seen[8:]):
        assert sorted(n for batch in epoch for n in batch) == list(range(7))


def test_the_adapter_after_loading_is_the_one_that_was_saved(tmp_path: Path) -> None:
    # Case g07: four updates a batch; stopped in the second batch, whose rollouts are taken up again, which is said.
    folder = tmp_path / "run"
    sections: dict[str, Any] = {
        "lora": {"rank": 4},
        "run": {"sinks": ["terminal"]},
        "evaluate": {"at_start": False},
    }
    made = setup.assemble(
        read_inputs(load(tree(folder, **sections)), rewards=[restless], train=ROWS, held_out=HELD_OUT)
    )
    update, calls = made.updater.update, 0

    def fails(*given: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 7:
            raise KeyboardInterrupt
        return update(*given, **options)

    made.updater.update = fails  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        loop.train(made)
    last = saved_checkpoints(folder / "checkpoints")[-1][1]
    assert last.name == "step-000001-update-0002"
    saved = load_file(last / "adapter" / "adapter_model.safetensors")
    loaded, resumed = open_run(folder)
    said = io.StringIO()
    run = start.resume(
        loaded,
        resumed,
        rewards=[restless],
        train=ROWS,
        held_out=HELD_OUT,
        console=Console(file=said, soft_wrap=True),
    )
    held = trained_weights(run.policy)
    assert set(held) == set(saved)
    assert all(torch.equal(held[name], saved[name]) for name in saved)
    assert (
        "resumed from the checkpoint of step 2 after 2 updates, with the rollouts of the" in said.getvalue()
    )
    assert run.keeper.batch is not None
    assert run.keeper.batch.done == 2
    assert run.updater.updates == 6
    run.recorder.close()


def test_two_processes_do_not_train_in_one_folder(stopped: Callable[..., None], tmp_path: Path) -> None:
    stopped(tmp_path / "run", 3)
    held = lock(RunFolder(tmp_path / "run"))
    try:
        with pytest.raises(RunFolderError, match="another process is training in"):
            resume(tmp_path / "run")
    finally:
        held.release()
    resume(tmp_path / "run")


def test_without_checkpoints_there_is_nothing_to_resume(stopped: Callable[..., None], tmp_path: Path) -> None:
    stopped(tmp_path / "run", 4, checkpoint={"save": False})
    before = (tmp_path / "run" / "metrics.jsonl").read_text()
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        resume(tmp_path / "run")
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == before


def test_functions_and_rows_from_python_are_asked_for_by_name(
    stopped: Callable[..., None], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    stopped(folder, 3)
    with pytest.raises(
        CheckpointError, match=r"rewards=\[\.\.\.\] \(restless\), train=\[\.\.\.\], held_out=\[\.\.\.\]"
    ):
        groupwise.train(resume=folder)
    with pytest.raises(CheckpointError, match="the rows given in Python are not those"):
        groupwise.train(resume=folder, rewards=[restless], train=ROWS[1:], held_out=HELD_OUT)
    with pytest.raises(CheckpointError, match="the rewards given in Python are not those"):
        groupwise.train(resume=folder, rewards=[restless, print_nothing], train=ROWS, held_out=HELD_OUT)
    resume(folder)  # the refusals let go of the folder


def print_nothing(completions: list[str], **columns: Any) -> list[float]:
    return [0.0] * len(completions)


class Counting:
    """A reward with a memory: it gives less and less."""

    __name__ = "counting"

    def __init__(self, fails_at: int = 0) -> None:
        self.calls, self.fails_at = 0, fails_at

    def __call__(self, completions: list[str], **columns: Any) -> list[float]:
        self.calls += 1
        if self.calls == self.fails_at:
            raise KeyboardInterrupt
        return [len(text) / self.calls for text in completions]

    def state(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def restore(self, state: Any) -> None:
        self.calls = state["calls"]


def test_a_reward_with_a_memory_is_saved_with_the_run(tmp_path: Path) -> None:
    train(tmp_path / "whole", reward=Counting())
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", reward=Counting(fails_at=5))
    resume(tmp_path / "run", reward=Counting())
    assert differing(left_behind(tmp_path / "run"), left_behind(tmp_path / "whole")) == []


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "there is no run folder"),
        (lambda path: path.mkdir(), "is not a run folder: it has no manifest.json"),
        (lambda path: path.write_text("x"), "there is no run folder"),
    ],
)
def test_what_is_no_run(tmp_path: Path, make: Callable[[Path], Any], says: str) -> None:
    make(tmp_path / "run")
    with pytest.raises(RunFolderError, match=says):
        groupwise.train(resume=tmp_path / "run")
    with pytest.raises(ConfigError, match="one of the two"):
        groupwise.train({}, resume=tmp_path / "run")
