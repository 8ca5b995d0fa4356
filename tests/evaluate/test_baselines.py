"""Answers without thought: planted data, and what they get on GSM8K."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.config.rewards import RewardConfig
from groupwise.evaluate.baselines import baselines
from groupwise.records import Prompt
from groupwise.rewards import build

GSM8K = Path(__file__).parents[2] / "examples" / "gsm8k" / "data" / "test.jsonl"


def prompt(index: int, text: str, **columns: Any) -> Prompt:
    return Prompt(
        id=f"made:{index}",
        source="made",
        messages=None,
        text=text,
        token_ids=np.array([1], dtype=np.int32),
        columns=columns,
    )


def measured(prompts: list[Prompt], reward: str) -> dict[str, float]:
    rewards = build([RewardConfig(name=reward)], base=Path.cwd())
    found = baselines(prompts, rewards, pass_reward=1.0)
    assert [b.passes.value for b in found] == sorted((b.passes.value for b in found), reverse=True)
    assert rewards.take_metrics().totals == {}
    return {b.name: b.passes.value for b in found}


def test_planted_answers() -> None:
    # The commonest answer, 3, is right for 3 of 5; the last number for rows 0 and 4; the largest for rows 0 and 3.
    rows = [("2 or 3", "3"), ("1 of 2", "3"), ("7 and 1", "3"), ("9 to 8", "9"), ("5, then 4", "4")]
    found = measured([prompt(i, text, answer=answer) for i, (text, answer) in enumerate(rows)], "numeric")
    assert found == {
        "always '3'": 0.6,
        "the last number of the prompt": 0.4,
        "the largest number of the prompt": 0.4,
        "the prompt itself": 0.4,  # whose last number it is
        "an empty answer": 0.0,
    }


def test_rows_that_all_differ_have_no_commonest_answer() -> None:
    found = measured([prompt(i, "say it", answer=f"word {i}") for i in range(3)], "exact")
    assert found == {"an empty answer": 0.0, "the prompt itself": 0.0}


def test_gsm8k() -> None:
    # What the monitor of a run on GSM8K has to beat: a model at 2 % has shown nothing.
    rows = [json.loads(line) for line in GSM8K.read_text(encoding="utf-8").splitlines()]
    prompts = [prompt(i, row["question"], answer=row["answer"]) for i, row in enumerate(rows)]
    golds = [row["answer"].rpartition("####")[2].strip().replace(",", "") for row in rows]
    commonest = max(set(golds), key=golds.count)
    found = measured(prompts, "math_answer")
    assert found[f"always {commonest!r}"] == golds.count(commonest) / 1319
    assert 0.01 < found[f"always {commonest!r}"] < 0.05
    assert 0.0 < found["the last number of the prompt"] < 0.06
    assert 0.0 < found["the largest number of the prompt"] < 0.06
    assert found["an empty answer"] == found["the prompt itself"] == 0.0
