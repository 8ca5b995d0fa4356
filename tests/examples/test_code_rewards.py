"""The example of rewards that run code, at tiny size."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from groupwise.cli.main import run
from groupwise.records.metrics_file import read_metrics
from groupwise.rewards.scorers.code_tests import code_tests
from tests.rewards.sandbox.conftest import isolation, ways

__all__ = ["isolation"]

FOLDER = Path(__file__).parents[2] / "examples" / "code_rewards"


@pytest.mark.parametrize("isolation", ways(), indirect=True)
def test_every_solution_is_right_and_a_wrong_one_is_not(isolation: Any) -> None:
    rows = [json.loads(line) for line in (FOLDER / "solutions.jsonl").read_text().splitlines()]
    tests, names = [row["tests"] for row in rows], [row["entry_point"] for row in rows]
    right = [row["completion"] for row in rows]
    assert code_tests(right, tests, names, isolation=isolation) == [1.0] * len(rows)
    wrong = [f"```python\ndef {name}(*anything):\n    return 'wrong'\n```" for name in names]
    assert code_tests(wrong, tests, names, isolation=isolation) == [0.0] * len(rows)


@pytest.mark.parametrize("isolation", ways(), indirect=True)
def test_the_example_passes_check_and_trains(
    isolation: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = yaml.safe_load((FOLDER / "config.yaml").read_text())
    config["rewards"][0]["settings"]["isolation"] = isolation
    config["prompts"] |= {side: str(FOLDER / f"{side}.jsonl") for side in ("train", "held_out")}
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    assert run(["check", str(file)]) == 0
    assert "prompts x" in capsys.readouterr().out
    tiny = [
        "model=tiny",
        "training.steps=2",
        "rollout.prompts_per_step=2",
        "rollout.group_size=2",
        "run.sinks=[]",
    ]
    short = [
        "rollout.max_new_tokens=4",
        "evaluate.prompts=2",
        "evaluate.every_steps=null",
        "prompts.too_long=drop",
    ]
    assert run(["train", str(file), *tiny, *short, f"run.dir={tmp_path / 'run'}"]) == 0
    lines = list(read_metrics(tmp_path / "run" / "metrics.jsonl"))
    assert [line["step"] for line in lines] == [0, 1, 2]
    names = {name for line in lines for name in line}
    assert all(any(label in name for name in names) for label in ("code_tests", "code_syntax"))


def test_the_script_beside_the_data_writes_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("make_data_for_test", FOLDER / "make_data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.chdir(tmp_path)
    module.main()
    for name in ("train", "held_out", "solutions"):
        assert (tmp_path / f"{name}.jsonl").read_bytes() == (FOLDER / f"{name}.jsonl").read_bytes()
