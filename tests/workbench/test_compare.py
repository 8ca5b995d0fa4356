"""Whole comparisons with the tiny model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import ConfigError, GroupwiseError, RunFolderError
from groupwise.records.metrics_file import comparable, read_metrics
from groupwise.training import loop
from groupwise.workbench.compare import Planned, compare, plan

CONFIG = """\
model: tiny
prompts: {train: train.jsonl, held_out: held_out.jsonl}
rewards: [{name: "reward.py:letters"}]
rollout: {prompts_per_step: 2, group_size: 3, max_new_tokens: 4}
objective: {preset: grpo}
training: {steps: 2, learning_rate: 0.001}
evaluate: {pass_reward: 0.5}
"""
REWARD = '''
def letters(completions, **columns):
    """Share of lower-case letters."""
    return [sum(c.islower() for c in text) / max(len(text), 1) for text in completions]
'''
METRIC = "eval/reward_mean"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "reward.py").write_text(REWARD)
    for name, count in (("train", 5), ("held_out", 3)):
        rows = [{"prompt": f"{name} {i}:"} for i in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return tmp_path


def planned(project: Path, *vary: str, seeds: int = 2, words: tuple[str, ...] = ()) -> list[Planned]:
    return plan(project / "config.yaml", vary, seeds=seeds, folder=project / "out", overrides=words)


def silent(sentence: str) -> None:
    pass


def test_each_variant_changes_one_thing_and_nothing_else(project: Path) -> None:
    runs = planned(project, "objective=grpo,dr_grpo", "training.learning_rate=0.001,1e-4")
    assert [run.name for run in runs[:3]] == [
        "base, seed 0",
        "objective=dr_grpo, seed 0",
        "training.learning_rate=1e-4, seed 0",
    ]
    assert [run.seed for run in runs] == [0] * 3 + [1] * 3
    base, dr_grpo, slower = (run.loaded.config for run in runs[:3])
    assert dr_grpo.objective.advantage.name == "group_mean"
    assert slower.training.learning_rate == 1e-4
    same = {"objective": base.objective, "run": base.run}
    assert dr_grpo.model_copy(update=same) == base
    assert base.evaluate.every_steps == 1  # steps // 10, at least 1
    assert not base.run.save_model
    assert planned(project, "objective=rloo", words=("run.save_model=true",))[0].loaded.config.run.save_model


def test_values_with_commas_of_their_own(project: Path) -> None:
    choice = "{name: clip, low: 0.1, high: 0.3}"
    runs = planned(
        project, f"objective.surrogate={choice},cispo", "rollout.stop_tokens=['a,b'],['c']", seeds=1
    )
    assert [run.variant for run in runs[1:]] == [
        f"objective.surrogate={choice}",
        "objective.surrogate=cispo",
        "rollout.stop_tokens=['a,b']",
        "rollout.stop_tokens=['c']",
    ]
    assert len({run.folder.path for run in runs}) == 5


def test_a_comparison_from_end_to_end(project: Path) -> None:
    runs = planned(project, "objective=dr_grpo")
    said: list[str] = []
    found = compare(runs, metric=METRIC, folder=project / "out", say=said.append)
    assert [line.split("  ")[0] for line in said] == ["1/4", "2/4", "3/4", "4/4"]
    assert {name: len(each) for name, each in found.outcomes.items()} == {"base": 2, "objective=dr_grpo": 2}
    first, other = (found.outcomes[name][0] for name in found.outcomes)
    assert [step for step, _ in first.curve] == [0, 1, 2]
    assert first.curve[0] == other.curve[0]  # the same model on the same prompts
    assert first.tokens > 0
    # The first batch is the same, since prompts and streams are; the second already differs by the first update.
    lines = [read_metrics(run.folder.metrics_file) for run in runs[:2]]
    assert lines[0][1]["reward/mean"] == lines[1][1]["reward/mean"]
    assert lines[0][1]["advantage/std"] != lines[1][1]["advantage/std"]
    texts = {
        name: (project / "out" / name).read_text() for name in ("table.md", "results.json", "curves.svg")
    }
    assert texts["table.md"].startswith(found.table())
    assert "within noise" in texts["table.md"] or "by more than the noise" in texts["table.md"]
    assert json.loads(texts["results.json"])["runs"][0]["curve"] == [list(point) for point in first.curve]
    assert "dr_grpo" in texts["curves.svg"]

    again = compare(runs, metric=METRIC, folder=project / "out", say=pytest.fail)
    assert again.data() == found.data()
    more = planned(project, "objective=dr_grpo,rloo", seeds=2)
    said.clear()
    compare(more, metric=METRIC, folder=project / "out", most=1, say=said.append)
    assert [line.partition("  ")[2].partition(":")[0] for line in said] == ["objective=rloo, seed 0"]
    assert (project / "out" / "table.md").read_text().endswith("- 1 of 6 runs have not ended yet.\n")
    by_pass = compare(runs, metric="eval/pass@1", folder=project / "out", say=pytest.fail)
    assert by_pass.outcomes["base"][0].metric == "eval/pass@1"


def test_an_interrupted_run_is_gone_on_with(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("training.steps=4", "checkpoint.every_steps=2")
    whole = planned(project, "objective=dr_grpo", seeds=1, words=words)
    expected = compare(whole, metric=METRIC, folder=project / "out", say=silent)
    lines = [comparable(line) for line in read_metrics(whole[0].folder.metrics_file)]

    step = loop.train_step

    def broken(run: Any, number: int) -> Any:
        if number == 4:
            raise KeyboardInterrupt
        return step(run, number)

    config = project / "config.yaml"
    runs = plan(config, ["objective=dr_grpo"], seeds=1, folder=project / "again", overrides=words)
    monkeypatch.setattr(loop, "train_step", broken)
    with pytest.raises(KeyboardInterrupt):
        compare(runs, metric=METRIC, folder=project / "again", say=silent)
    monkeypatch.setattr(loop, "train_step", step)
    said: list[str] = []
    found = compare(runs, metric=METRIC, folder=project / "again", say=said.append)
    assert said[0].startswith("base, seed 0: goes on from step")
    assert [comparable(line) for line in read_metrics(runs[0].folder.metrics_file)] == lines
    assert [o.curve for each in found.outcomes.values() for o in each] == [
        o.curve for each in expected.outcomes.values() for o in each
    ]


def test_a_run_that_another_process_is_making_is_left_to_it(project: Path) -> None:
    from filelock import FileLock

    runs = planned(project, "objective=dr_grpo", seeds=1)
    runs[0].folder.path.parent.mkdir(parents=True)
    with FileLock(runs[0].folder.path.with_suffix(".lock")):
        found = compare(runs, metric=METRIC, folder=project / "out", say=silent)
    assert list(found.outcomes) == ["objective=dr_grpo"]
    assert found.sentences()[-1] == "1 of 2 runs have not ended yet."


def test_runs_of_other_settings_or_data_are_not_mixed(project: Path) -> None:
    runs = planned(project, "objective=dr_grpo", seeds=1)
    compare(runs, metric=METRIC, folder=project / "out", most=1, say=silent)
    other = planned(project, "objective=dr_grpo", seeds=1, words=("training.learning_rate=1e-5",))
    with pytest.raises(
        RunFolderError, match=r"base/seed-0 was made with another section 'training' .* --output"
    ):
        compare(other, metric=METRIC, folder=project / "out", say=silent)
    with (project / "train.jsonl").open("a") as file:
        file.write('{"prompt": "one more"}\n')
    with pytest.raises(RunFolderError, match="was made on other data than base"):
        compare(runs, metric=METRIC, folder=project / "out", say=silent)


@pytest.mark.parametrize(
    ("vary", "words", "message"),
    [
        (["objective"], (), r"--vary 'objective': give it as key=value,value, such as objective=grpo,dapo"),
        (["objective="], (), "give it as key=value,value"),
        (["objective=grpo,,dapo"], (), "give it as key=value,value"),
        (["=grpo"], (), "give it as key=value,value"),
        (["objective=grpo"], (), "changes nothing of .*config.yaml, so there is nothing to compare"),
        (["objective=rloo", "objective.preset=rloo"], (), "come to the same configuration; leave one out"),
        (["objective=gpro"], (), "gpro"),
        (["training.setps=1,2"], (), "did you mean training.steps"),
        (["rollout.group_size=1,2"], (), "rollout.group_size is 1"),
        (["objective=rloo"], ("prompts.held_out=null",), "prompts.held_out is needed"),
        (["objective=rloo"], ("evaluate.at_end=false",), "evaluate.at_end stays true"),
        (["evaluate.at_end=true,false"], (), "evaluate.at_end stays true"),
        (
            ["run.seed=1,2"],
            (),
            "--vary run.seed: every variant is run with the same seeds; say how many with --seeds",
        ),
        (["run.dir=a,b"], (), "--vary run.dir: .* name it with --output"),
        (
            ["evaluate.temperature=0,1"],
            (),
            "with another section evaluate this variant would be measured otherwise",
        ),
        (
            ["prompts.held_out=held_out.jsonl,train.jsonl"],
            (),
            "with another prompts.held_out this variant would be",
        ),
        (["rewards=[exact]"], (), "judged by others than the base; set evaluate.rewards for all"),
        (["method=dpo"], (), "runs are compared of method rl|method is dpo"),
    ],
)
def test_what_is_refused(project: Path, vary: list[str], words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        planned(project, *vary, words=words)
    assert not (project / "out").exists()


def test_training_data_and_rewards_may_be_what_varies(project: Path) -> None:
    (project / "fewer.jsonl").write_text('{"prompt": "a:"}\n{"prompt": "b:"}\n')
    (project / "half.py").write_text(REWARD.replace("[sum", "[0.5 * sum"))
    words = ("evaluate.rewards=[{name: 'reward.py:letters'}]", "training.steps=1")
    runs = planned(project, "prompts.train=fewer.jsonl", "rewards=['half.py:letters']", seeds=1, words=words)
    found = compare(runs, metric=METRIC, folder=project / "out", say=silent)
    assert [name.partition("=")[0] for name in found.outcomes] == ["base", "prompts.train", "rewards"]
    # Before any update all three are the same model, judged alike.
    assert len({each[0].curve[0] for each in found.outcomes.values()}) == 1
    names = (project / "out" / "curves.svg").read_text()
    assert "prompts.train=fewer.jsonl" in names  # two keys vary, so a value alone would not say which


def test_seeds_and_a_metric_that_is_not_there(project: Path) -> None:
    with pytest.raises(ConfigError, match=r"--seeds is 0; at least 1 is needed"):
        planned(project, "objective=rloo", seeds=0)
    runs = planned(project, "objective=dr_grpo", seeds=1)
    with pytest.raises(
        ConfigError, match=r"eval/pass@2 is not measured by these runs; there are eval/pass@1, "
    ):
        compare(runs, metric="eval/pass@2", folder=project / "out", say=silent)


def test_what_a_later_variant_lacks_is_told_before_the_first_run(project: Path) -> None:
    words = ("evaluate.rewards=[{name: 'reward.py:letters'}]",)
    for vary, message in (
        ("model=tiny,nope", "model.name 'nope'"),
        ("prompts.train=train.jsonl,nope.jsonl", "nope.jsonl"),
        ("rewards=['reward.py:nope']", "nope"),
    ):
        with pytest.raises(GroupwiseError, match=message):
            compare(planned(project, vary, words=words), metric=METRIC, folder=project / "out", say=silent)
    assert not list((project / "out").rglob("*.json*"))


def test_a_folder_that_is_no_place_for_a_comparison(project: Path) -> None:
    runs = planned(project, "objective=dr_grpo", seeds=1)
    with pytest.raises(RunFolderError, match=r"--output .*train.jsonl/x: the folder cannot be made"):
        compare(runs, metric=METRIC, folder=project / "train.jsonl" / "x", say=silent)
    (project / "run").mkdir()
    (project / "run" / "manifest.json").write_text("{}")
    with pytest.raises(RunFolderError, match="is the folder of a run; name another one"):
        compare(runs, metric=METRIC, folder=project / "run", say=silent)
    assert sorted(path.name for path in (project / "run").iterdir()) == ["manifest.json"]


@pytest.mark.long
def test_a_comparison_that_is_killed_is_gone_on_with_by_the_same_command(project: Path) -> None:
    """SIGKILL in the middle of the first variant's run, and of the second's."""
    words = ["compare", "config.yaml", "--vary", "objective=grpo,dr_grpo", "--seeds", "1", "--metric", METRIC]
    words += ["training.steps=12", "checkpoint.every_steps=3"]
    command = [sys.executable, "-m", "groupwise", *words, "--output"]
    subprocess.run([*command, "whole"], cwd=project, check=True, capture_output=True)
    for dead, place in enumerate(("*", "*dr_grpo*")):
        with subprocess.Popen(
            [*command, "killed"],
            cwd=project,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            until = time.monotonic() + 120
            while process.poll() is None and time.monotonic() < until:
                files = sorted((project / "killed").glob(f"{place}/**/metrics.jsonl"))
                if any(file.read_text(encoding="utf-8").count("\n") >= 5 for file in files[-1:]):
                    break
                time.sleep(0.02)
            assert process.poll() is None, f"run {dead} ended before it could be killed"
            os.killpg(process.pid, signal.SIGKILL)
    done = subprocess.run([*command, "killed"], cwd=project, check=True, capture_output=True, text=True)
    assert re.search(r"dr_grpo, seed 0: goes on from step \d+", done.stdout)
    one, other = (json.loads((project / name / "results.json").read_text()) for name in ("whole", "killed"))
    assert one["differences"] == other["differences"]
    assert [run["curve"] for run in one["runs"]] == [run["curve"] for run in other["runs"]]
    files = sorted((project / "whole").glob("**/metrics.jsonl"))
    assert len(files) == 2
    for file in files:
        same = project / "killed" / file.relative_to(project / "whole")
        assert [*map(comparable, read_metrics(same))] == [*map(comparable, read_metrics(file))]
