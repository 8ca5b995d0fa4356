"""A reward says the same of a completion in a run, in `eval`, in `score` and in `check-reward`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.cli.main import run
from groupwise.records import TrainingGroup
from groupwise.records.rollout_file import read_rollouts

REWARD = '''
def of_everything(prompts, completions, completion_ids, stop_reasons, answer, *, factor: float = 1.0):
    """A number that changes with all that a reward can be told."""
    return [
        factor * (len(p[-1]["content"]) + 10 * sum(map(ord, c[0]["content"])) % 97 + sum(ids) % 89 / 100)
        + (s == "stop") + len(a) / 7
        for p, c, ids, s, a in zip(prompts, completions, completion_ids, stop_reasons, answer)
    ]
'''
REPETITION = ["--set", "n=1", "--set", "unit=characters"]
CONFIG = """\
model: tiny
prompts: {train: rows.jsonl, held_out: held.jsonl, chat: true}
rewards:
  - {name: "reward.py:of_everything", weight: 0.25, settings: {factor: 0.5}}
  - {name: repetition, weight: 2, settings: {n: 1, unit: characters}, on_failure: drop}
rollout: {prompts_per_step: 2, group_size: 4, max_new_tokens: 8}
objective: {preset: grpo, kl: {beta: 0.0}}
training: {steps: 2, learning_rate: 0.001}
evaluate: {at_start: false, at_end: false}
run: {dir: run, sinks: []}
"""


def test_the_value_is_the_same_in_all_four(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("reward.py").write_text(REWARD)
    Path("config.yaml").write_text(CONFIG)
    rows = [{"prompt": f"Question {i}?", "answer": "x" * i} for i in range(1, 5)]
    held = [{"prompt": f"Is it {i}?", "answer": "y" * i} for i in range(1, 4)]
    for name, some in (("rows", rows), ("held", held)):
        Path(f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in some))

    assert run(["train", "config.yaml"]) == 0
    groups = [
        entry for step in (1, 2) for entry in read_rollouts(Path(f"run/rollouts/step-{step:06d}.parquet"))
    ]
    trained = [verdict.parts for entry in groups for verdict in entry.group.verdicts_G]
    assert all(len({parts[label] for parts in trained}) > 4 for label in ("of_everything", "repetition"))

    for label, words in (("of_everything", ["--set", "factor=0.5"]), ("repetition", REPETITION)):
        name = "reward.py:of_everything" if label == "of_everything" else label
        assert _scored(groups, name, words) == [parts[label] for parts in trained]

    code = run(["check-reward", "run", "--rows", "99", "--json", "checked.json"])
    assert code in (0, 1)  # what it thinks of this reward is not the point
    checked = json.loads(Path("checked.json").read_text())
    sampled = [each for each in checked["completions"] if each["kind"] == "sampled"]
    assert [each["parts"] for each in sampled] == [dict(parts) for parts in trained]
    assert [each["reward"] for each in sampled] == [
        v.reward for entry in groups for v in entry.group.verdicts_G
    ]
    assert "differs_from_record" not in {finding["name"] for finding in checked["findings"]}

    words = ["rollout.max_new_tokens=8", "evaluate.temperature=1", "--output", "evaluated.json"]
    assert run(["eval", "run", *words]) == 0
    evaluated = json.loads(Path("evaluated.json").read_text())
    for prompt, row in zip(evaluated["prompts"], held, strict=True):
        for response in prompt["responses"]:
            # Ids are not in the file, so what does not need them is compared.
            line = {"prompt": row["prompt"], "completion": response["text"], "answer": row["answer"]}
            assert _score_lines([line], "repetition", REPETITION)[0] == response["parts"]["repetition"]

    # A reward that has changed since is told.
    Path("later.py").write_text(REWARD.replace("len(a) / 7", "len(a) / 8"))
    Path("later.yaml").write_text(CONFIG.replace("reward.py", "later.py"))
    capsys.readouterr()
    run(["check-reward", "later.yaml", "--run", "run", "--rows", "99"])
    assert "differs_from_record: 16 of 32 values differ" in capsys.readouterr().out


def _scored(groups: list[TrainingGroup], reward: str, words: list[str]) -> list[float | None]:
    lines = [
        {
            "prompt": [dict(message) for message in entry.group.prompt.messages or ()],
            "completion": rollout.text,
            "completion_ids": rollout.token_ids_T.tolist(),
            "stop_reason": rollout.stop_reason.value,
            **entry.group.prompt.columns,
        }
        for entry in groups
        for rollout in entry.group.rollouts_G
    ]
    return _score_lines(lines, reward, words)


def _score_lines(lines: list[dict[str, Any]], reward: str, words: list[str]) -> list[float | None]:
    Path("said.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert run(["score", reward, "said.jsonl", "--output", "scored.jsonl", *words]) == 0
    return [json.loads(line)["reward"] for line in Path("scored.jsonl").read_text().splitlines()]
