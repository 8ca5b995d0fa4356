"""PPO with a critic and ReMax as whole runs of the tiny model; benchmarks/test_presets.py sees that they learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import groupwise
from groupwise.records.metrics_file import comparable
from groupwise.records.rollout_file import read_rollouts
from tests.contracts.documentation import undocumented

PROMPTS = ["Say yes.", "Give one word.", "What is two plus two?", "Hello", "How are you?"]
ROWS = [{"prompt": prompt} for prompt in PROMPTS]


def letters(completions: list[str], **columns: Any) -> list[float]:
    return [sum(c.islower() for c in text) / max(len(text), 1) for text in completions]


def tree(folder: Path, preset: str, **sections: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "model": {"name": "tiny"},
        "objective": {"preset": preset},
        "rollout": {"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 6},
        "training": {"steps": 3, "learning_rate": 1e-3},
        "run": {"dir": str(folder), "sinks": [], "save_model": False},
    }
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values}
    return base


@pytest.mark.parametrize("group_size", [1, 3])
def test_remax_records_its_greedy_rollouts_and_trains_on_none(tmp_path: Path, group_size: int) -> None:
    config = tree(tmp_path / "run", "remax", rollout={"group_size": group_size})
    result = groupwise.train(config, rewards=[letters], train=ROWS)
    assert undocumented({name for line in result.metrics for name in line} - {"step"}) == []
    for line in result.metrics:
        groups = read_rollouts(result.folder / f"rollouts/step-{int(line['step']):06d}.parquet")
        greedy = [g.group.greedy for g in groups]
        assert all(one is not None for one in greedy)
        baselines = [one.verdict.reward for one in greedy if one is not None]
        assert line["reward/greedy_mean"] == pytest.approx(np.mean(baselines))
        rewards = [v.reward for g in groups for v in g.group.verdicts_G]
        assert len(rewards) == group_size * len(groups)
        assert line["reward/mean"] == pytest.approx(np.mean(rewards))
        for entry, baseline in zip(groups, baselines, strict=True):
            for i, verdict in enumerate(entry.group.verdicts_G):
                kl = float((entry.old_logprobs_GT[i] - entry.reference_logprobs_GT[i]).sum())  # type: ignore[index]
                expected = verdict.reward - 0.01 * kl - baseline  # type: ignore[operator]
                np.testing.assert_allclose(entry.advantages_GT[i], expected, atol=1e-5)
        assert line["tokens/trained"] == sum(len(r.token_ids_T) for g in groups for r in g.group.rollouts_G)


@pytest.mark.parametrize("backbone", ["own", "policy"])
def test_ppo_leaves_its_values_in_the_records_and_repeats(tmp_path: Path, backbone: str) -> None:
    runs = []
    for name in ("a", "b"):
        config = tree(tmp_path / name, "ppo", critic={"backbone": backbone}, rollout={"group_size": 1})
        result = groupwise.train(config, rewards=[letters], train=ROWS)
        runs.append([comparable(line) for line in result.metrics])
    assert runs[0] == runs[1]
    assert undocumented({name for line in runs[0] for name in line} - {"step"}) == []
    groups = read_rollouts(result.folder / "rollouts/step-000002.parquet")
    values = np.concatenate([v for g in groups for v in g.values_GT or ()])
    assert np.isfinite(values).all()
    assert np.abs(values).max() > 0
    assert {"critic/loss", "critic/explained_variance", "critic/clip_fraction"} <= set(runs[0][1])
    assert runs[0][0]["critic/memory_ratio"] == pytest.approx(1.0 if backbone == "own" else 0.0, abs=0.01)


@pytest.mark.parametrize("lora", [None, {"rank": 4}])
def test_a_critic_stands_beside_an_adapter_too(tmp_path: Path, lora: dict[str, int] | None) -> None:
    sections = {} if lora is None else {"lora": lora}
    result = groupwise.train(tree(tmp_path / "run", "ppo", **sections), rewards=[letters], train=ROWS)
    assert len(result.series("critic/loss")) == 3
    assert max(result.series("critic/grad_norm")) > 0
