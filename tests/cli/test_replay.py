"""`groupwise replay` through the command."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Said


def test_through_the_command(project: Path, groupwise: Callable[..., Said]) -> None:
    assert groupwise("train", "config.yaml", "checkpoint.every_steps=1").code == 0
    same = groupwise("replay", "run", "--step", "2")
    assert (same.code, same.out.splitlines()[-1]) == (0, "no differences"), same
    assert same.out.startswith("step 2, 6 rollouts\nrewards      6 rewards computed\n")
    metrics = project / "run" / "metrics.jsonl"
    first, second = metrics.read_text().splitlines()[-2:]
    line = json.loads(second)
    line["policy/loss"] += 0.5
    metrics.write_text(f"{first}\n{json.dumps(line)}\n")
    other = groupwise("replay", "run", "--step", "2", "--group", "0")
    assert other.code == 1
    assert "policy/loss: " in other.out
    assert other.out.endswith("1 of the numbers differ from what was logged\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("replay run --step 9", "the run in run has no step 9; it has finished the steps 1 to 2"),
        ("replay run --step 0", "--step"),
        ("replay run", "--step"),
        ("replay nowhere --step 1", "nowhere is not a run folder"),
        ("replay config.yaml --step 1", "not a run folder"),
        ("replay run --step 1 --group 7", "no group 7"),
    ],
)
def test_wrong_words(project: Path, groupwise: Callable[..., Said], words: str, says: str) -> None:
    if words.startswith("replay run"):
        assert groupwise("train", "config.yaml", "checkpoint.save=false").code == 0
    found = groupwise(*words.split())
    assert found.code == 2
    assert says in found.err
    assert len(found.err.splitlines()) == 1


def test_a_run_without_rollouts_and_a_damaged_file(project: Path, groupwise: Callable[..., Said]) -> None:
    assert groupwise("train", "config.yaml", "run.save_rollouts=false").code == 0
    assert "was the run started with run.save_rollouts?" in groupwise("replay", "run", "--step", "1").err
    assert groupwise("train", "config.yaml", "run.overwrite=true").code == 0
    path = project / "run/rollouts/step-000001.parquet"
    path.write_bytes(path.read_bytes()[:100])
    found = groupwise("replay", "run", "--step", "1")
    assert (found.code, "cannot be read as Parquet, it may be damaged" in found.err) == (2, True)
