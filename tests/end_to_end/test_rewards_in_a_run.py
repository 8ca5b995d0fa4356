"""What a run logs and records of its rewards is what its advantages come from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import groupwise
from groupwise.records.rollout_file import read_rollouts

GATED = {
    "on_failure": "drop",
    "schedule": [[0, 0.5], [2, 1.0]],
    "gate": {"reward": "letters", "at_least": 0.1},
}


def letters(completions: list[str]) -> list[float]:
    return [sum(c.isalpha() for c in text) / 10 for text in completions]


def fails_on_the_first(completions: list[str], log_metric: Any) -> list[Any]:
    log_metric("size", len(completions))
    return [ValueError("the first"), *[float(len(c)) for c in completions[1:]]]


def test_the_logged_total_is_the_sum_that_the_advantages_use(tmp_path: Path) -> None:
    result = groupwise.train(
        {
            "model": "tiny",
            "rollout": {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 6},
            "objective": {"preset": "dr_grpo", "kl": {"beta": 0.0}},
            "training": {"steps": 3},
            "run": {"dir": str(tmp_path / "run"), "sinks": [], "save_model": False},
            "rewards": [
                {"name": "length", "settings": {"unit": "characters", "target": 3}, "weight": 0, "label": "watch"}
            ],
        },
        rewards=[
            (letters, {"normalise": "group", "smoothing": 0.5, "weight": 0.7}),
            (fails_on_the_first, GATED),
        ],
        train=[{"prompt": "One"}, {"prompt": "Two"}],
    )  # fmt: skip
    for step, line in enumerate(result.metrics, start=1):
        groups = read_rollouts(tmp_path / "run" / "rollouts" / f"step-{step:06d}.parquet")
        verdicts = [v for g in groups for v in g.group.verdicts_G]
        rewards = [v.reward for v in verdicts if v.reward is not None]
        assert len(rewards) == 7
        for verdict in verdicts:
            assert set(verdict.parts) == {"watch", "letters", "fails_on_the_first"}
            if verdict.reward is not None:
                assert verdict.reward == sum(verdict.terms.values())
        assert line["reward/mean"] == pytest.approx(np.mean(rewards), abs=1e-12)
        assert line["reward/part/fails_on_the_first/failed_count"] == 1
        assert line["reward/failed_count"] == 1
        assert line["reward/part/fails_on_the_first/weight"] == {1: 0.5, 2: 0.75, 3: 1.0}[step]
        assert line["reward/logged/size"] == 8
        assert {"reward/raw_mean", "reward/part/letters/running_std", "time/reward/letters_seconds"} <= set(
            line
        )
        for group in groups:  # dr_grpo: reward less the mean of the group
            present = [v.reward for v in group.group.verdicts_G if v.reward is not None]
            wanted = [
                0.0 if v.reward is None else v.reward - np.mean(present) for v in group.group.verdicts_G
            ]
            assert [row.mean() for row in group.advantages_GT] == pytest.approx(wanted, abs=1e-12)


def test_a_failure_is_never_a_zero(tmp_path: Path) -> None:
    """Zero is what a wrong answer gets; a rollout that could not be judged has no reward and is not trained on."""
    groupwise.train(
        {
            "model": "tiny",
            "rollout": {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 3},
            "objective": {"kl": {"beta": 0.0}},
            "training": {"steps": 1},
            "run": {"dir": str(tmp_path / "run"), "sinks": [], "save_model": False},
        },
        rewards=[(fails_on_the_first, {"on_failure": "drop"})],
        train=[{"prompt": "One"}, {"prompt": "Two"}],
    )
    first, second = read_rollouts(tmp_path / "run" / "rollouts" / "step-000001.parquet")
    assert [v.reward is None for v in first.group.verdicts_G] == [True, False, False, False]
    assert "ValueError: the first" in (first.group.verdicts_G[0].failure or "")
    assert list(first.in_loss_G) == [False, True, True, True]
    assert all(second.in_loss_G)
