"""The health of a run from its folder."""

import json
from pathlib import Path

import pytest

from groupwise.errors import RunFolderError
from groupwise.records import Severity
from groupwise.records.metrics_file import MetricsFile
from groupwise.workbench.health import diagnose
from tests.health.series import lines, wobble


def folder_of(path: Path, metrics: list[dict[str, float]], config: str = "") -> Path:
    path.mkdir(exist_ok=True)
    (path / "manifest.json").write_text(json.dumps({"groupwise": "0"}))
    (path / "config.yaml").write_text(config or "rollout: {group_size: 2, prompts_per_step: 4}\n")
    with MetricsFile(path / "metrics.jsonl") as file:
        for line in metrics:
            file.append(int(line["step"]), {k: v for k, v in line.items() if k != "step"})
    return path


def test_findings_that_hold_and_that_are_over(tmp_path: Path) -> None:
    kl = [0.1] * 5 + [0.9, 0.95] + [0.1] * 23
    dead = [0.1] * 15 + [0.95] * 15
    path = folder_of(tmp_path, lines(30, {"kl/token_mean": kl, "reward/zero_spread_fraction": dead}))
    found = diagnose(path)
    assert found.steps == 30
    assert found.worst is Severity.CRITICAL
    assert [finding.check for finding in found.open] == ["dead_groups"]
    text = "\n".join(found.lines())
    # The mean of ten steps is 0.1 + 0.085 k after k of them: 0.5 or more from k = 5 on, which is step 20; 0.9 and more
    # from k = 10 on, step 25.
    assert "critical  dead_groups, since step 20: " in text
    assert "  causes    1. the reward has few values" in text
    assert "  try       1. raise rollout.temperature towards 1" in text
    assert "over  critical kl_runaway, steps 7 to 17: KL is 0.95 nats per token" in text


def test_a_run_that_goes_on_may_have_a_torn_line(tmp_path: Path) -> None:
    path = folder_of(tmp_path, lines(5, {"reward/mean": wobble(0.5, 0.1, 5)}))
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "rew')
    before = sorted((p.name, p.stat().st_size) for p in path.iterdir())
    found = diagnose(path)
    assert found.steps == 5
    assert "cut short" in found.notes[0]
    few = "nothing found, but 5 steps are too few for most checks to say anything"
    assert list(found.lines())[-1] == few
    assert sorted((p.name, p.stat().st_size) for p in path.iterdir()) == before, "nothing is written"


def test_a_run_that_learned_nothing_says_so_as_the_terminal_does(tmp_path: Path) -> None:
    flat = {"advantage/mean": [0.0] * 3, "advantage/std": [0.0] * 3}
    said = list(diagnose(folder_of(tmp_path / "flat", lines(3, flat))).lines())
    assert said[1] == "learned nothing from rewards: every advantage was 0, in every step"
    some = {"advantage/mean": [0.0] * 3, "advantage/std": [0.0, 0.0, 0.5]}
    assert diagnose(folder_of(tmp_path / "some", lines(3, some))).nothing_learned is None


def test_a_run_without_a_step(tmp_path: Path) -> None:
    path = folder_of(tmp_path, [])
    assert list(diagnose(path).lines())[-1] == "no step is finished yet, so there is nothing to look at"


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="there is no run folder"):
        diagnose(tmp_path / "none")
    with pytest.raises(RunFolderError, match="is not a run folder: it has no manifest"):
        diagnose(tmp_path)
    (tmp_path / "manifest.json").write_text('{"groupwise": "0"}')
    with pytest.raises(RunFolderError, match=r"has no config\.yaml"):
        diagnose(tmp_path)
    (tmp_path / "config.yaml").write_text("{}")
    with pytest.raises(RunFolderError, match="there is no metrics file"):
        diagnose(tmp_path)
