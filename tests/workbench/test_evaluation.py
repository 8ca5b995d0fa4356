from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from groupwise.config import load
from groupwise.records import Group, Prompt, Rollout, StopReason, Verdict
from groupwise.workbench.evaluation import Measured, files_read


def group(name: str, rewards: list[float | None]) -> Group:
    rollouts = [
        Rollout(
            prompt_id=name,
            group_index=i,
            token_ids_T=np.array([1, 2], dtype=np.int32),
            trainable_T=np.ones(2, dtype=np.bool_),
            sampler_logprobs_T=np.zeros(2, dtype=np.float32),
            kept_mass_T=None,
            entropy_T=None,
            stop_reason=StopReason.STOP,
            policy_version=0,
            text="é",
        )
        for i in range(len(rewards))
    ]
    prompt = Prompt(id=name, source="x", messages=None, text=name, token_ids=np.array([3], dtype=np.int32))
    verdicts = tuple(
        Verdict(
            reward=r,
            parts={"a": r, "b": None if r is None else 2 * r},
            failure=None if r is not None else "no",
        )
        for r in rewards
    )
    return Group(prompt=prompt, rollouts_G=tuple(rollouts), verdicts_G=verdicts)


@pytest.fixture
def measured() -> Measured:
    metrics = {
        "eval/pass@1": 0.5,
        "eval/reward_mean": 0.5,
        "eval/length_mean": 2.0,
        "eval/truncated_fraction": 0.0,
    }
    groups = [group("p", [1.0, 0.0]), group("q", [1.0, 1.0]), group("r", [0.0, None])]
    return Measured(
        model="m",
        data="d",
        temperature=0.7,
        groups=groups,
        metrics=metrics,
        pass_reward=1.0,
        notes=["cut"],
        judged_by=("a", "b"),
    )


def test_the_table(measured: Measured) -> None:
    # Rates per prompt 0.5, 1, 0: mean 0.5, sample variance 0.5 / 2 = 0.25, squared standard error 0.25 / 3, so they are
    # worth 0.25 / (0.25 / 3) = 3 prompts. Wilson with z^2 = 3.8415: middle (0.5 + 3.8415 / 6) / (1 + 3.8415 / 3) = 0.5,
    # half 1.96 sqrt(0.25 / 3 + 3.8415 / 36) / 2.2805 = 0.3747. Part a: (1 + 0 + 1 + 1 + 0) / 5 = 0.6, b twice that.
    assert measured.lines() == [
        "model        m",
        "data         d: 3 prompts, 2 at temperature 0.7",
        "note         cut",
        "passes       a reward of 1 or more, by a, b",
        "pass@1       50.0% [12.5%, 87.5%]",
        "mean reward  0.5000",
        "  a          0.6000",
        "  b          1.2000",
        "no reward    1 of 6 responses; they do not pass",
        "mean length  2.0 tokens, 0.0% cut off",
    ]


def test_the_file_is_strict_json_with_every_response(measured: Measured) -> None:
    found = json.loads(measured.json(), parse_constant=lambda word: pytest.fail(word))
    assert found["metrics"]["eval/pass@1"] == 0.5
    assert found["notes"] == ["cut"]
    assert [len(prompt["responses"]) for prompt in found["prompts"]] == [2, 2, 2]
    assert found["prompts"][2]["responses"][1] == {
        "text": "é",
        "tokens": 2,
        "stop_reason": "stop",
        "reward": None,
        "parts": {"a": None, "b": None},
        "failure": "no",
    }


def test_the_files_that_are_read_are_known(tmp_path: Path) -> None:
    tree = {
        "prompts": {"train": "t.jsonl", "held_out": "h.jsonl"},
        "rewards": ["numeric", "mine.py:f", "json:loads"],
    }
    loaded = load(tree, base=tmp_path)
    assert files_read("c.yaml", loaded, Path("d.jsonl")) == [
        Path("c.yaml"),
        Path("d.jsonl"),
        tmp_path / "h.jsonl",
        tmp_path / "t.jsonl",
        tmp_path / "mine.py",
        Path(json.__file__),
    ]
    assert files_read(str(tmp_path), loaded)[0] == tmp_path / "config.yaml"
