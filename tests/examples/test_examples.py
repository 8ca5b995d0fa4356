"""The examples as a user runs them, at tiny size."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.cli.main import run
from groupwise.records.metrics_file import read_metrics

ROOT = Path(__file__).parents[2]
TINY = [
    "model=tiny",
    "training.steps=2",
    "rollout.prompts_per_step=2",
    "rollout.group_size=2",
    "run.sinks=[]",
]


@pytest.mark.parametrize(
    ("name", "of"),
    [("first_run", "prompts"), ("gsm8k", "prompts"), ("customer_service", "prompts"), ("dpo", "pairs")],
)
def test_every_example_passes_check(name: str, of: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(ROOT / "examples" / name / "config.yaml")]) == 0
    assert f"{of} x" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["first_run", "gsm8k", "customer_service"])
def test_every_example_trains(name: str, tmp_path: Path) -> None:
    short = [*TINY, "rollout.max_new_tokens=4", "evaluate.prompts=2", "evaluate.every_steps=null"]
    short += ["prompts.too_long=drop"]  # the tiny model reads 512 tokens
    words = [str(ROOT / "examples" / name / "config.yaml"), *short, f"run.dir={tmp_path / 'run'}"]
    assert run(["train", *words]) == 0
    assert [line["step"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl")] == [0, 1, 2]
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


def test_the_pairs_train(tmp_path: Path) -> None:
    short = ["model=tiny", "training.steps=2", "evaluate.prompts=2", "evaluate.every_steps=null"]
    short += ["run.sinks=[]", f"run.dir={tmp_path / 'run'}"]
    assert run(["train", str(ROOT / "examples" / "dpo" / "config.yaml"), *short]) == 0
    assert [line["step"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl")] == [0, 1, 2]


@pytest.mark.parametrize("name", ["first_run", "dpo"])
def test_the_script_beside_the_data_writes_it_again(name: str, tmp_path: Path) -> None:
    folder = ROOT / "examples" / name
    (tmp_path / "make_data.py").write_bytes((folder / "make_data.py").read_bytes())
    subprocess.run([sys.executable, "make_data.py"], cwd=tmp_path, check=True)
    for file in ("train.jsonl", "held_out.jsonl"):
        assert (tmp_path / file).read_bytes() == (folder / file).read_bytes()


def test_the_first_run_keeps_its_sides_apart() -> None:
    folder = ROOT / "examples" / "first_run"

    def pairs(file: str) -> set[tuple[int, ...]]:
        prompts = [json.loads(line)["prompt"] for line in (folder / file).read_text().splitlines()]
        return {tuple(sorted(int(n) for n in re.findall(r"\d+", p))) for p in prompts}

    train, held_out = pairs("train.jsonl"), pairs("held_out.jsonl")
    assert len(train) == 2000
    assert len(held_out) == 200
    assert not train & held_out


def test_the_customers_data_is_as_its_script_writes_it(tmp_path: Path) -> None:
    folder = ROOT / "examples" / "customer_service"
    (tmp_path / "make_data.py").write_bytes((folder / "make_data.py").read_bytes())
    subprocess.run([sys.executable, "make_data.py"], cwd=tmp_path, check=True)
    rows = {}
    for file in ("train.jsonl", "held_out.jsonl"):
        assert (tmp_path / file).read_bytes() == (folder / file).read_bytes()
        rows[file] = [json.loads(line) for line in (folder / file).read_text().splitlines()]
    orders = [set(re.findall(r"\b\d{5}\b", row["prompt"])) for some in rows.values() for row in some]
    assert len(set().union(*orders)) == len(orders) == 112  # no order is on both sides
    for row in [*rows["train.jsonl"], *rows["held_out.jsonl"]]:
        assert all(keyword in row["reference"] for keyword in row["keywords"])


def test_the_customers_rewards_pass_their_examination(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-reward", str(ROOT / "examples" / "customer_service" / "config.yaml")]) == 0
    said = capsys.readouterr().out
    assert "sound: no fault" in said
    assert "warning" not in said


def test_the_first_runs_reward() -> None:
    namespace: dict[str, object] = {}
    exec((ROOT / "examples/first_run/reward.py").read_text(), namespace)
    reward = namespace["right_and_brief"]
    said = ["149", "78 + 71 = 149.", "The sum is 150.", "149 or", ""]
    completions = [[{"role": "assistant", "content": text}] for text in said]
    stops = ["stop", "stop", "stop", "length", "length"]
    assert reward(completions, stops, ["149"] * 5) == [1.0, 1.0, 0.0, 0.4, 0.0]  # type: ignore[operator]


def test_the_readmes_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (ROOT / "README.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", readme, flags=re.S)
    monkeypatch.chdir(tmp_path)
    code = code.replace("smollm2-135m", "tiny")
    namespace: dict[str, object] = {}
    exec(code, namespace)
    assert len(namespace["result"].series("reward/mean")) == 2  # type: ignore[attr-defined]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
