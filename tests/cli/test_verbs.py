"""Each verb does its work on a real project with the tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from groupwise.records.metrics_file import read_metrics
from groupwise.records.run_folder import RunFolder
from tests.cli.conftest import Said


@pytest.fixture
def trained(project: Path, groupwise: Callable[..., Said]) -> Said:
    said = groupwise("train", "config.yaml")
    assert (said.code, said.err) == (0, "")
    return said


def test_train_ends_with_what_happened_and_what_to_try(trained: Said, project: Path) -> None:
    metrics = read_metrics(RunFolder(project / "run").metrics_file)
    assert [line["step"] for line in metrics] == [0, 1, 2]
    before, after = metrics[0]["eval/pass@1"], metrics[2]["eval/pass@1"]
    first, last = metrics[1]["reward/mean"], metrics[2]["reward/mean"]
    ending = trained.out.partition("\n\n")[2].splitlines()
    assert ending == [
        f"held-out pass@1  {before:.1%} before, {after:.1%} after (of 3 prompts)",
        f"reward           {first:.3f} in the first step, {last:.3f} in the last step",
        "run folder       run",
        "try next         groupwise report run",
        "                 groupwise eval run",
        "                 groupwise sample run --row 0",
    ]


def test_train_without_held_out_data(project: Path, groupwise: Callable[..., Said]) -> None:
    said = groupwise(
        "train", "config.yaml", "prompts.held_out=null", "run.save_model=false", "training.steps=10"
    )
    metrics = read_metrics(RunFolder(project / "run").metrics_file)
    rewards = [line["reward/mean"] for line in metrics]
    first, last = sum(rewards[:5]) / 5, sum(rewards[5:]) / 5
    assert said.out.partition("\n\n")[2].splitlines() == [
        f"reward           {first:.3f} in the first 5 steps, {last:.3f} in the last 5 steps",
        "run folder       run",
        "try next         groupwise report run",
    ]


def test_train_says_when_nothing_was_learned_and_when_all_was_done(
    project: Path, groupwise: Callable[..., Said]
) -> None:
    (project / "same.py").write_text(
        "def same(completions, **columns):\n    return [1.0] * len(completions)\n"
    )
    settings = ("prompts.held_out=null", 'rewards=[{name: "same.py:same"}]', "run.dir=flat")
    said = groupwise("train", "config.yaml", *settings)
    assert (
        "learned          nothing from rewards: every advantage was 0, in every step" in said.out.splitlines()
    )
    (project / "mute.py").write_text(
        "def mute(completions, **columns):\n    return [None] * len(completions)\n"
    )
    mute = ("prompts.held_out=null", 'rewards=[{name: "mute.py:mute"}]', "run.dir=mute")
    unscored = "learned          nothing: no rollout had a reward, as when the right answers are null or cannot be read"
    assert unscored in groupwise("train", "config.yaml", *mute).out.splitlines()
    again = groupwise("train", "--resume", "flat")
    assert "all 2 steps were finished before; a larger training.steps goes on" in again.out.splitlines()
    # A group of one teaches where a greedy response is what it is compared with.
    alone = groupwise(
        "train",
        "config.yaml",
        "prompts.held_out=null",
        "rollout.group_size=1",
        "objective.advantage=greedy_baseline",
        "run.dir=alone",
    )
    assert alone.code == 0, alone.err
    metrics = read_metrics(RunFolder(project / "alone").metrics_file)
    assert any(line["advantage/std"] for line in metrics)
    assert "learned  " not in alone.out


def test_eval_of_the_run_repeats_its_last_evaluation(
    trained: Said, project: Path, groupwise: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    last = read_metrics(RunFolder(project / "run").metrics_file)[-1]
    elsewhere = project / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)  # data and rewards are found from the run folder alone
    said = groupwise("eval", "../run", "--output", "found.json")
    assert (said.code, said.err) == (0, "")
    found = json.loads((elsewhere / "found.json").read_text())
    for name in ("eval/pass@1", "eval/reward_mean", "eval/length_mean", "eval/truncated_fraction"):
        assert found["metrics"][name] == last[name]
    assert f"mean reward  {last['eval/reward_mean']:.4f}" in said.out
    assert [prompt["id"] for prompt in found["prompts"]] == [f"held_out.jsonl:{i}" for i in range(3)]
    response = found["prompts"][0]["responses"][0]
    letters = sum(c.islower() for c in response["text"]) / max(len(response["text"]), 1)
    assert response["reward"] == response["parts"]["letters"] == letters


def test_eval_with_another_model_data_and_sampling(
    trained: Said, project: Path, groupwise: Callable[..., Said]
) -> None:
    def measured(*words: str) -> dict[str, object]:
        assert groupwise("eval", *words, "--output", "found.json").code == 0
        return json.loads((project / "found.json").read_text())

    untrained = measured("config.yaml")
    assert untrained["model"] == "tiny"
    by_run, by_folder = (measured("config.yaml", "--model", each) for each in ("run", "run/model"))
    assert by_run == by_folder == measured("run")
    assert by_run["prompts"] != untrained["prompts"] or by_run["metrics"] != untrained["metrics"]
    sampled = measured("config.yaml", "--data", "train.jsonl", "--temperature", "1", "--samples", "4")
    assert (sampled["data"], sampled["temperature"]) == ("train.jsonl", 1.0)
    assert [len(prompt["responses"]) for prompt in sampled["prompts"]] == [4] * 5
    assert measured("config.yaml", "evaluate.prompts=2")["prompts"] == untrained["prompts"][:2]


def test_a_failed_eval_leaves_the_output_as_it_was(project: Path, groupwise: Callable[..., Said]) -> None:
    (project / "found.json").write_text("before")
    said = groupwise("eval", "config.yaml", "model=./nowhere", "--output", "found.json")
    assert said.code == 2
    assert (project / "found.json").read_text() == "before"
    assert not list(project.glob(".*partial"))


def test_a_run_is_repeated_from_its_own_configuration(
    trained: Said, project: Path, groupwise: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    from groupwise.records.metrics_file import comparable

    (project / "elsewhere").mkdir()
    monkeypatch.chdir(project / "elsewhere")
    assert groupwise("train", "../run/config.yaml", "run.dir=again").code == 0
    runs = [read_metrics(RunFolder(path).metrics_file) for path in (project / "run", Path("again"))]
    assert [comparable(line) for line in runs[0]] == [comparable(line) for line in runs[1]]


def test_sample_shows_a_group_with_rewards_and_advantages(
    project: Path, groupwise: Callable[..., Said]
) -> None:
    said = groupwise("sample", "config.yaml", "--prompt", "hello", "--group-size", "4")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[:2] == ["tiny: 4 responses at temperature 1, up to 4 tokens, to", "  | hello"]
    heads = [line for line in lines if line.startswith("#")]
    assert [head.split()[0] for head in heads] == ["#0", "#1", "#2", "#3"]
    rewards = [float(head.split("reward ")[1].split()[0]) for head in heads]
    advantages = [float(head.split("advantage ")[1].split()[0]) for head in heads]
    mean = sum(rewards) / 4
    std = (sum((r - mean) ** 2 for r in rewards) / 3) ** 0.5
    assert std > 0
    # (r - mean) / (std + 1e-4) with the sample std; both are shown with three decimals or four digits.
    assert advantages == pytest.approx([(r - mean) / (std + 1e-4) for r in rewards], abs=0.01)
    assert groupwise("sample", "config.yaml", "--prompt", "hello", "--group-size", "4").out == said.out
    other = groupwise("sample", "config.yaml", "--prompt", "hello", "--group-size", "4", "run.seed=1")
    assert other.out != said.out


def test_sample_of_rows_and_columns(project: Path, groupwise: Callable[..., Said]) -> None:
    assert "  | train 2:" in groupwise("sample", "config.yaml", "--row", "2").out
    assert "  | held_out 0:" in groupwise("sample", "config.yaml", "--row", "0", "--held-out").out
    said = groupwise(
        "sample", "config.yaml", "--prompt", "2 + 2", "--column", "answer=4", "rewards=[numeric]"
    )
    assert said.code == 0
    assert "(numeric 0)" in said.out
    assert "teaches nothing" in said.out


def test_score_writes_a_line_per_row_in_order(project: Path, groupwise: Callable[..., Said]) -> None:
    rows = [
        {"prompt": "2 + 2", "completion": "it is 4", "solution": "4"},
        {"prompt": "2 + 3", "completion": "it is 6", "solution": "5"},
        {"prompt": "x", "completion": "7", "solution": "none"},
    ]
    (project / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    said = groupwise("score", "numeric", "rows.jsonl", "--output", "out.jsonl", "--column", "answer=solution")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        "3 rows: mean reward 0.5, lowest 0, highest 1; 1 without a reward",
        "wrote out.jsonl",
    ]
    assert [json.loads(line) for line in (project / "out.jsonl").read_text().splitlines()] == [
        {"reward": 1.0, "parts": {"numeric": 1.0}, "failure": None},
        {"reward": 0.0, "parts": {"numeric": 0.0}, "failure": None},
        {"reward": None, "parts": {"numeric": None}, "failure": "no reward applies"},
    ]
    said = groupwise(
        *("score", "numeric", "rows.jsonl", "--output", "out.jsonl", "--column", "answer=solution"),
        *("--set", "tolerance=1"),
    )
    assert [json.loads(line)["reward"] for line in (project / "out.jsonl").read_text().splitlines()] == [
        1,
        1,
        None,
    ]


def test_score_to_standard_output_is_nothing_but_lines(project: Path, groupwise: Callable[..., Said]) -> None:
    (project / "rows.jsonl").write_text('{"prompt": "a", "completion": "bc"}\n')
    said = groupwise("score", "reward.py:letters", "rows.jsonl", "--output", "-")
    assert said.code == 0
    assert [json.loads(line)["reward"] for line in said.out.splitlines()] == [1.0]
    assert said.err == "1 rows: mean reward 1, lowest 1, highest 1\n"


def test_eval_to_standard_output_is_nothing_but_json(project: Path, groupwise: Callable[..., Said]) -> None:
    said = groupwise("eval", "config.yaml", "--output", "-")
    assert said.code == 0
    assert len(json.loads(said.out)["prompts"]) == 3
    assert "pass@1" in said.err


def test_score_names_the_rows_that_a_function_fails_on(project: Path, groupwise: Callable[..., Said]) -> None:
    (project / "own.py").write_text(
        "def length(completions):\n    return [1 / len(text) for text in completions]\n"
    )
    rows = [{"prompt": "a", "completion": text} for text in ("four", "", "xx")]
    (project / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    said = groupwise("score", "own.py:length", "rows.jsonl", "--output", "out.jsonl")
    assert said.code == 0
    lines = [json.loads(line) for line in (project / "out.jsonl").read_text().splitlines()]
    assert [line["reward"] for line in lines] == [0.25, None, 0.5]
    assert "ZeroDivisionError" in lines[1]["failure"]


def test_init_writes_what_check_accepts_and_train_runs(
    tmp_path: Path, groupwise: Callable[..., Said]
) -> None:
    folder = tmp_path / "new" / "start"
    said = groupwise("init", str(folder))
    assert (said.code, said.err) == (0, "")
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["config.yaml", "held_out.jsonl", "reward.py", "train.jsonl"]
    assert len((folder / "config.yaml").read_text().splitlines()) < 30
    # The tiny model stands in for the embedded one, whose wheel a test machine need not have.
    checked = groupwise("check", str(folder / "config.yaml"), "model=tiny")
    assert (checked.code, checked.err) == (0, "")
    assert "question" not in checked.out
    words = ("model=tiny", "training.steps=1", f"run.dir={tmp_path / 'run'}", "evaluate.prompts=2")
    assert groupwise("train", str(folder / "config.yaml"), *words).code == 0
    again = groupwise("init", str(folder))
    assert again.code == 2


def test_smoke_says_fail_with_exit_code_1(groupwise: Callable[..., Said]) -> None:
    said = groupwise("smoke", "training.steps=4", "--control", "learning-rate-zero", "--seed", "3")
    assert said.code == 1
    assert said.out.splitlines()[-1].startswith("FAIL: the mean reward went from ")
    assert said.err == ""


def test_smoke_says_pass(groupwise: Callable[..., Said]) -> None:
    said = groupwise("smoke", "--seed", "3")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[-1].startswith("PASS: the mean reward rose from ")


def test_check_reward_ends_with_a_verdict_and_its_code(project: Path, groupwise: Callable[..., Said]) -> None:
    rows = [{"prompt": f"What is {i} + 40?", "answer": str(i + 40)} for i in range(5)]
    (project / "sums.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    said = groupwise("check-reward", "numeric", "--data", "sums.jsonl")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[-1].startswith("verdict       sound: no fault in ")
    said = groupwise("check-reward", "config.yaml", "--no-answer", "--json", "found.json")
    assert (said.code, said.err) == (0, "")
    assert json.loads((project / "found.json").read_text())["sound"]
    (project / "ones.py").write_text(
        "def ones(completions, **columns):\n    return [1.0] * len(completions)\n"
    )
    said = groupwise("check-reward", "ones.py:ones", "--data", "sums.jsonl", "--json", "-")
    assert said.code == 1
    assert [finding["name"] for finding in json.loads(said.out)["findings"]] == ["constant"]
    assert said.err.splitlines()[-1] == "verdict       not sound: constant"


def test_check_reward_refuses_what_cannot_be(project: Path, groupwise: Callable[..., Said]) -> None:
    for words, why in (
        (("--answer", "answer", "--no-answer"), "error: --answer and --no-answer contradict each other"),
        (("--json", "train.jsonl"), "error: --json train.jsonl is train.jsonl, which is read here"),
        (("--json", "."), "error: --json . is a folder"),
        (("--rows", "0"), "error: Invalid value for '--rows'"),
        (("--repeats", "1"), "error: Invalid value for '--repeats'"),
        (("--anser", "x"), "error: groupwise check-reward has no option --anser; did you mean --answer?"),
    ):
        said = groupwise("check-reward", "numeric", "--data", "train.jsonl", *words)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith(why)


def test_a_verb_without_settings_lists_its_options(project: Path, groupwise: Callable[..., Said]) -> None:
    said = groupwise("score", "numeric", "train.jsonl", "-o", "out.jsonl")
    assert said.code == 2
    assert said.err == "error: groupwise score has no option -o; there are --output, --set, --column\n"


@pytest.fixture
def pairs(project: Path) -> Path:
    (project / "pairs.yaml").write_text(
        "method: dpo\nmodel: tiny\nprompts: {train: pairs.jsonl, held_out: held_pairs.jsonl}\n"
        "dpo: {pairs_per_step: 4}\ntraining: {steps: 3, learning_rate: 0.001}\nrun: {dir: run, sinks: [terminal]}\n"
    )
    for name, count in (("pairs", 8), ("held_pairs", 4)):
        rows = [{"prompt": f"{name} {i}:", "chosen": " yes", "rejected": " no no no"} for i in range(count)]
        (project / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return project


def test_train_on_pairs(pairs: Path, groupwise: Callable[..., Said]) -> None:
    said = groupwise("train", "pairs.yaml")
    assert (said.code, said.err) == (0, "")
    metrics = read_metrics(RunFolder(pairs / "run").metrics_file)
    after = metrics[-1]["eval/dpo_accuracy"]
    first, last = metrics[1]["dpo/margin_mean"], metrics[3]["dpo/margin_mean"]
    assert said.out.partition("\n\n")[2].splitlines() == [
        f"held-out         accuracy 50.0% before, {after:.1%} after (of 4 pairs)",
        f"margin           {first:.3f} in the first step, {last:.3f} in the last step",
        "run folder       run",
    ]
    # Its model serves a configuration that has rewards; the run itself has none.
    said = groupwise("eval", "run")
    assert said.code == 2
    assert "run is of method dpo, which has no rewards and samples nothing" in said.err
    assert groupwise("eval", "config.yaml", "--model", "run").code == 0


def test_check_pairs(pairs: Path, groupwise: Callable[..., Said]) -> None:
    said = groupwise("check", "pairs.yaml", "dpo.beta=9")
    assert said.code == 0
    assert "4 pairs x 2 responses = 8 responses, one update per batch" in said.out
    assert "pairs.jsonl: 8 rows, 2 steps an epoch; 3 steps are 1.5 epochs" in said.out
    assert "held_pairs.jsonl: 4 rows; 4 pairs, before, after" in said.out
    assert "chosen: 'yes'" in said.out
    assert "dpo.beta is 9; usual is 0.01 to 0.5" in said.out
    (pairs / "pairs.jsonl").write_text('{"prompt": "x", "chosen": "y"}\n')
    said = groupwise("train", "pairs.yaml")
    assert said.code == 2
    assert (
        "pairs.jsonl line 1: no column 'rejected'; the row has prompt, chosen; dpo.rejected names it"
        in said.err
    )
    assert not (pairs / "run").exists()
