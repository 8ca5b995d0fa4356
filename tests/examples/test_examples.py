"""The examples as a user runs them, at tiny size."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.cli.main import run
from groupwise.records.metrics_file import read_metrics
from tests.rollouts.vllm.stub import interpreter

ROOT = Path(__file__).parents[2]
TINY = [
    "model=tiny",
    "training.steps=2",
    "rollout.prompts_per_step=2",
    "rollout.group_size=2",
    "run.sinks=[]",
]


SHORT = [
    *TINY,
    "rollout.max_new_tokens=4",
    "evaluate.prompts=2",
    "evaluate.every_steps=null",
    "prompts.too_long=drop",  # the tiny model reads 512 tokens
]
TRAINED = [
    "first_run",
    "gsm8k",
    "customer_service",
    "custom_reward",
    "custom_advantage",
    "lora",
    "multi_reward",
    "multi_node",
]
ELSEWHERE = {"code_rewards", "dpo", "vllm"}
"""Trained by `test_code_rewards.py` and by tests of their own below."""


def test_every_example_has_a_test_and_says_what_it_is() -> None:
    folders = {path.parent.name for path in (ROOT / "examples").glob("*/config.yaml")}
    assert folders == {*TRAINED, *ELSEWHERE}
    index = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\((\w+)/README.md\)", index)) == folders
    for name in folders:
        lines = (ROOT / "examples" / name / "README.md").read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith("# ")
        assert any("groupwise" in line or "launch.sh" in line for line in lines)
        assert (ROOT / "examples" / name / "config.yaml").read_text(encoding="utf-8").startswith("# ")


@pytest.mark.parametrize("name", [*TRAINED, "dpo", "vllm"])
def test_every_example_passes_check(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(ROOT / "examples" / name / "config.yaml")]) == 0
    assert f"{'pairs' if name == 'dpo' else 'prompts'} x" in capsys.readouterr().out


# The commands of each example's README are run too (tests/docs), so here one is enough until there is time for all.
@pytest.mark.parametrize(
    "name", [name if name == "first_run" else pytest.param(name, marks=pytest.mark.long) for name in TRAINED]
)
def test_every_example_trains(name: str, tmp_path: Path) -> None:
    short = list(SHORT)
    words = [str(ROOT / "examples" / name / "config.yaml"), *short, f"run.dir={tmp_path / 'run'}"]
    assert run(["train", *words]) == 0
    assert [line["step"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl")] == [0, 1, 2]
    assert list((tmp_path / "run" / "model").rglob("*.safetensors"))


def test_the_pairs_train(tmp_path: Path) -> None:
    short = ["model=tiny", "training.steps=2", "evaluate.prompts=2", "evaluate.every_steps=null"]
    short += ["run.sinks=[]", f"run.dir={tmp_path / 'run'}"]
    assert run(["train", str(ROOT / "examples" / "dpo" / "config.yaml"), *short]) == 0
    assert [line["step"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl")] == [0, 1, 2]


@pytest.mark.long  # tests/training/test_serving.py starts a server in the same way
@pytest.mark.parametrize("overlap", [0, 1])
def test_a_server_samples(overlap: int, tmp_path: Path) -> None:
    """Started by the run, in place of vLLM's by its stand-in."""
    words = [*SHORT, f"rollout.overlap={overlap}", f"run.dir={tmp_path / 'run'}"]
    with interpreter(tmp_path) as python:
        words.append(f"rollout.vllm.python={python}")
        assert run(["train", str(ROOT / "examples" / "vllm" / "config.yaml"), *words]) == 0
    lines = list(read_metrics(tmp_path / "run" / "metrics.jsonl"))
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert all(line["time/weights_seconds"] > 0 for line in lines[1:])
    assert ("time/wait_seconds" in lines[1]) == bool(overlap)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_machines_make_the_run_of_one(tmp_path: Path) -> None:
    """Both are this one; launch.sh joins them, and takes the run up again when it is started once more."""
    reward = "rewards=[{name: length, settings: {target: 0, alpha: 0.1, unit: characters}}]"
    batch = [*SHORT, "rollout.prompts_per_step=4", "rollout.group_size=4", reward]
    words = [*batch, f"run.dir={tmp_path / 'alone'}", "training.steps=3"]
    assert run(["train", str(ROOT / "examples" / "multi_node" / "config.yaml"), *words]) == 0
    _on_two_machines(tmp_path, *batch)
    _on_two_machines(tmp_path, "training.steps=3")
    runs = [list(read_metrics(tmp_path / name / "metrics.jsonl")) for name in ("alone", "together")]
    for one, other in zip(*runs, strict=True):
        for name in ("reward/mean", "length/mean", "grad/norm", "kl/token_mean", "policy/loss"):
            assert (name in one) == (name in other)
            if name in one:
                assert one[name] == pytest.approx(other[name], rel=1e-4, abs=1e-6), name
    assert all(line["grad/norm"] > 0 for line in runs[0][1:]), "what is compared has to learn"


def _on_two_machines(place: Path, *settings: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(sys.executable).parent
    own = {**os.environ, "PORT": str(port), "PATH": f"{folder}:{os.environ['PATH']}"}
    own |= {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    script = str(ROOT / "examples" / "multi_node" / "launch.sh")
    nodes = [
        subprocess.Popen([script, str(node), "2", "127.0.0.1", str(place / "together"), *settings], env=own)
        for node in range(2)
    ]
    assert [node.wait(timeout=280) for node in nodes] == [0, 0]


@pytest.mark.parametrize("name", ["first_run", "dpo", "custom_reward"])
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


@pytest.mark.parametrize("name", ["customer_service", "custom_reward"])
def test_rewards_pass_their_examination(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-reward", str(ROOT / "examples" / name / "config.yaml")]) == 0
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
