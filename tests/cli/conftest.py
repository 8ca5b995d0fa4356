"""A project of a few files, and the command called in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from groupwise.cli.main import run

CONFIG = """\
model: tiny
prompts: {train: train.jsonl, held_out: held_out.jsonl}
rewards: [{name: "reward.py:letters"}]
rollout: {prompts_per_step: 2, group_size: 3, max_new_tokens: 4}
objective: {preset: grpo, kl: {beta: 0.0}}
training: {steps: 2, learning_rate: 0.001}
run: {dir: run, sinks: [terminal]}
"""
REWARD = '''
def letters(completions, **columns):
    """Share of lower-case letters."""
    return [sum(c.islower() for c in text) / max(len(text), 1) for text in completions]
'''


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a call of the command did."""

    code: int
    out: str
    err: str


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "reward.py").write_text(REWARD)
    for name, count in (("train", 5), ("held_out", 3)):
        rows = [{"prompt": f"{name} {i}:", "answer": str(i)} for i in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def groupwise(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def call(*words: str) -> Said:
        capsys.readouterr()
        code = run(words)
        captured = capsys.readouterr()
        return Said(code=code, out=captured.out, err=captured.err)

    return call
