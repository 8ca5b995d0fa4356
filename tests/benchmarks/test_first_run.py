"""The page of results says what the run folders say."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture
def first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("first_run_for_test", ROOT / "benchmarks" / "first_run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    (tmp_path / "README.md").write_text("above\n<!-- demo -->\nold\n<!-- end -->\nbelow\n")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "RESULTS", tmp_path / "docs" / "results")
    return module


def a_run(folder: Path, *, seed: int, before: float, after: float, cores: int = 3, steps: int = 6) -> Path:
    """Steps with rewards 0.1, 0.2, ... of 60 s, 15 of them evaluation in the last, and 2,048 MiB."""
    folder.mkdir()
    (folder / "held_out.jsonl").write_text('{"prompt": "a"}\n' * 5)
    config = {
        "run": {"seed": seed, "base": str(folder)},
        "prompts": {"held_out": "held_out.jsonl"},
        "rollout": {"prompts_per_step": 7, "group_size": 11},
        "evaluate": {"prompts": None},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "manifest.json").write_text(json.dumps({"platform": {"cores": cores}}))
    lines = [{"step": 0, "eval/pass@1": before}]
    lines += [
        {"step": k, "reward/mean": k / 10, "time/step_seconds": 60.0, "memory/peak_rss_mb": 2048.0}
        for k in range(1, steps + 1)
    ]
    lines[-1] |= {"eval/pass@1": after, "time/evaluate_seconds": 15.0}
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


def test_page_curve_and_readme_from_run_folders(first_run: ModuleType, tmp_path: Path) -> None:
    folders = [
        a_run(tmp_path / "b", seed=4, before=0.2, after=0.8),
        a_run(tmp_path / "a", seed=3, before=0.1, after=0.6),
    ]
    first_run.write(folders)
    page = (tmp_path / "docs/results/first_run.md").read_text()
    # First five: (0.1 + ... + 0.5) / 5 = 0.3; last five: 0.4. 6 x 60 - 15 = 345 s = 5.75 min. 2,048 MiB = 2 GiB.
    assert "| 3 | 0.300 | 0.400 | 10.0% | 60.0% | 5.8 | 2.0 |\n| 4 | 0.300 | 0.400 | 20.0% | 80.0% |" in page
    assert "peak memory, GiB" in page
    flowing = " ".join(page.split())
    assert "6 steps of 7 prompts x 11 rollouts, on 3 CPU cores. Held out are 5 sums" in flowing
    assert "--seeds 3 4`" in page
    assert (tmp_path / "docs/results/first_run.svg").read_text().startswith("<?xml")
    readme = (tmp_path / "README.md").read_text()
    assert readme.startswith("above\n<!-- demo -->\n![reward per step]")
    assert readme.endswith("\n<!-- end -->\nbelow\n")
    assert "from between 10% and 20% to between 60% and 80% with 2 seeds, in 6 minutes" in readme


def test_what_all_seeds_share_is_said_once(first_run: ModuleType, tmp_path: Path) -> None:
    first_run.write([a_run(tmp_path / "a", seed=0, before=0.1, after=0.6)])
    assert "went from 10% to 60% with one seed" in (tmp_path / "README.md").read_text()


def test_runs_that_do_not_belong_together_are_refused(first_run: ModuleType, tmp_path: Path) -> None:
    one = a_run(tmp_path / "a", seed=0, before=0.1, after=0.6)
    for name, changed in (("b", {"cores": 4}), ("c", {"steps": 7})):
        with pytest.raises(SystemExit, match="differ in steps, batch, held-out data or cores"):
            first_run.write([one, a_run(tmp_path / name, seed=1, before=0.1, after=0.6, **changed)])
    half = a_run(tmp_path / "d", seed=1, before=0.1, after=0.6)
    lines = (half / "metrics.jsonl").read_text().splitlines(keepends=True)
    (half / "metrics.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(SystemExit, match="d: the run has not ended"):
        first_run.write([half])
    assert "old" in (tmp_path / "README.md").read_text()
