"""The folder that a page's commands find: data, a reward, a configuration, runs, and logs of other trainers."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

from groupwise.cli.main import run
from tests.docs.blocks import ROOT, TINY

CONFIG = """\
model: tiny
prompts: {train: sums.jsonl, held_out: other.jsonl}
rewards: ["reward.py:right"]
rollout: {prompts_per_step: 4, group_size: 4, max_new_tokens: 4}
training: {steps: 2}
run: {sinks: [tensorboard]}
"""
REWARD = '''\
def right(completions, answer, *, tolerance: float = 0.0):
    """1 when the last number is the answer."""
    said = [text.split()[-1:] for text in completions]
    return [float(word == [str(gold)]) for word, gold in zip(said, answer, strict=True)]


def readability(completions, **columns):
    return [1.0 / (1 + len(text)) for text in completions]
'''


def _rows(first: int) -> str:
    rows = [
        {"prompt": f"{a} + {b} =", "answer": str(a + b), "solution": str(a + b), "summary": f"It is {a + b}."}
        for a in range(first, first + 3)
        for b in range(1, 4)
    ]
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once; each page works on a copy."""
    folder = tmp_path_factory.mktemp("workshop")
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "reward.py").write_text(REWARD)
    (folder / "sums.jsonl").write_text(_rows(1))
    (folder / "other.jsonl").write_text(_rows(50))
    rows = [
        {"question": row["prompt"], "answer": row["answer"]}
        for row in map(json.loads, _rows(70).splitlines())
    ]
    (folder / "test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    here = Path.cwd()
    try:
        os.chdir(folder)
        for name, more in (("first", ["lora.rank=4"]), ("second", [])):
            words = [*TINY[:-1], *more, f"run.dir=runs/{name}", "run.sinks=[tensorboard]"]
            assert run(["train", "config.yaml", *words]) == 0
    finally:
        os.chdir(here)
    shutil.copytree(folder / "runs" / "second" / "model", folder / "model")
    _foreign_logs(folder)
    for name in ("examples", "docs", "benchmarks", "tests"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def _foreign_logs(folder: Path) -> None:
    log = [{"step": 10 * i, "reward": 0.1 * i, "kl": 0.01, "entropy": 1.0} for i in range(1, 6)]
    (folder / "output" / "checkpoint-500").mkdir(parents=True)
    (folder / "output" / "checkpoint-500" / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    lines = [{"step": i, "data": {"critic/rewards/mean": 0.1 * i, "actor/entropy": 1.0}} for i in range(1, 6)]
    (folder / "verl.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with SummaryWriter(str(folder / "runs" / "events")) as events:
        for entry in log:
            events.add_scalar("train/reward", entry["reward"], entry["step"])
