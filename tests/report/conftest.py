"""Run folders that were really made, small, and written as a run writes them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

CONFIG = """\
model: tiny
prompts: {train: train.jsonl, held_out: held_out.jsonl}
rewards: [{name: "reward.py:letters"}, {name: "reward.py:brief", weight: 0.5}]
rollout: {prompts_per_step: 3, group_size: 4, max_new_tokens: 8}
objective: {preset: grpo, kl: {beta: 0.05}}
training: {steps: 6, learning_rate: 0.01}
evaluate: {every_steps: 3, pass_reward: 0.5}
run: {dir: run, sinks: []}
"""
REWARD = '''
def letters(completions, **columns):
    """Share of lower-case letters."""
    return [sum(c.islower() for c in text) / max(len(text), 1) for text in completions]


def brief(completions, **columns):
    """1 for up to ten characters."""
    return [float(len(text) <= 10) for text in completions]
'''


def make_run(
    place: Path,
    *settings: str,
    prompts: Callable[[str, int], str] = lambda name, i: f"{name} {i}: tell, 日本 é",
) -> Path:
    """A run of six steps with the tiny model; gives its folder."""
    from groupwise.config import load
    from groupwise.training import loop
    from groupwise.training.inputs import read_inputs
    from groupwise.training.setup import assemble

    place.mkdir(parents=True, exist_ok=True)
    (place / "config.yaml").write_text(CONFIG)
    (place / "reward.py").write_text(REWARD)
    for name, count in (("train", 9), ("held_out", 2)):
        rows = [{"prompt": prompts(name, i), "answer": str(i)} for i in range(count)]
        (place / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    loaded = load(place / "config.yaml", [f"run.dir={json.dumps(str(place / 'run'))}", *settings])
    loop.train(assemble(read_inputs(loaded)))
    return place / "run"


def without_advantages(run: Path, place: Path) -> Path:
    """A copy of a run whose metrics say that every advantage was 0, and whose checks found nothing."""
    copy = place / "flat"
    shutil.copytree(run, copy)
    lines = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    flat = [{n: 0.0 if n.startswith("advantage/") else v for n, v in line.items()} for line in lines]
    (copy / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in flat))
    (copy / "health.jsonl").unlink(missing_ok=True)
    return copy


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps; not to be changed."""
    return make_run(tmp_path_factory.mktemp("finished"))
