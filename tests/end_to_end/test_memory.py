"""Memory: flat over a run, and bounded by the token budget of a forward pass, not by the batch."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from groupwise.model.tiny import write_tiny
from groupwise.records.metrics_file import read_metrics

pytestmark = pytest.mark.long

REWARD = """
import os

def resident(completions, log_metric, **columns):
    pages = int(open("/proc/self/statm").read().split()[1])
    log_metric("resident_mb", pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
    return [float(len(text) % 5) for text in completions]
"""


def run(folder: Path, **sections: dict[str, object]) -> list[dict[str, float]]:
    """The metrics of a run in a process of its own."""
    folder.mkdir()
    (folder / "rewards.py").write_text(REWARD)
    (folder / "rows.jsonl").write_text(
        "".join(json.dumps({"prompt": f"What is {n} plus {n}?"}) + "\n" for n in range(40))
    )
    tree: dict[str, dict[str, object]] = {
        "prompts": {"train": "rows.jsonl"},
        "rollout": {"group_size": 4, "cache_megabytes": 16},
        "run": {"dir": "run", "sinks": [], "save_model": False},
        **sections,
    }
    (folder / "config.yaml").write_text(json.dumps({**tree, "rewards": ["rewards.py:resident"]}))
    subprocess.run(
        [sys.executable, "-m", "groupwise", "train", "config.yaml"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return list(read_metrics(folder / "run/metrics.jsonl"))


@pytest.mark.skipif(
    not Path("/proc/self/statm").is_file(), reason="resident memory is read from Linux's /proc"
)
def test_it_is_flat_over_two_hundred_steps(tmp_path: Path) -> None:
    # Case k03: after warm-up less than 1 MB a step; here, over the last 150 steps together, less than 15 MB.
    lines = run(
        tmp_path / "long",
        model={"name": "tiny"},
        rollout={"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 8},
        objective={"kl": {"beta": 0.01}},
        training={"steps": 200, "learning_rate": 1e-4},
    )
    resident = np.array([line["reward/logged/resident_mb"] for line in lines])
    assert len(resident) == 200
    assert np.median(resident[-20:]) - np.median(resident[40:60]) < 15


def test_the_peak_follows_the_token_budget_and_not_the_batch(tmp_path: Path) -> None:
    # Case k02: the passes without gradient obey the same limit, so reference and old log-probs are on here.
    write_tiny(tmp_path / "model", hidden=256, layers=4)

    def peak(name: str, prompts: int, tokens: int) -> float:
        [line] = run(
            tmp_path / name,
            model={"name": str(tmp_path / "model")},
            rollout={"prompts_per_step": prompts, "max_new_tokens": 64},
            objective={"kl": {"beta": 0.01}, "old_source": "trainer"},
            training={"steps": 1, "micro_batch_tokens": tokens},
        )
        return line["memory/peak_rss_mb"]

    small = peak("small", 2, 256)
    large = peak("large", 12, 256)
    whole = peak("whole", 12, 1 << 20)
    assert whole - small > 80, "the batch was to be large enough to tell"
    assert large - small < 0.3 * (whole - small)
