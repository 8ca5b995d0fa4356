"""A reward says the same of a completion wherever it is asked: in training, `eval`, `score` and `check-reward`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import load
from groupwise.config.rewards import RewardConfig
from groupwise.records.rollout_file import read_rollouts
from groupwise.rewards import build
from groupwise.rewards.score_file import score_rows
from groupwise.training import loop, setup
from groupwise.training.inputs import read_inputs
from groupwise.workbench.check_reward import Source, check_reward
from groupwise.workbench.evaluation import evaluate_model
from groupwise.workbench.score import score_to_file

REWARD = '''
def reward(prompts, completions, answer, group_ids=None, **columns):
    """Whatever a reward may look at: the prompt, its columns, the completion and who is beside it."""
    said = [c if isinstance(c, str) else c[0]["content"] for c in completions]
    asked = [p if isinstance(p, str) else p[-1]["content"] for p in prompts]
    return [None if "x" in c else len(set(c)) / 7 + (a in c) + len(p) / 100 for p, c, a in zip(asked, said, answer)]
'''
ROWS = [{"prompt": "One plus one", "answer": "e"}, {"prompt": "Say yes", "answer": "t"}]


def project(folder: Path, *, chat: bool) -> dict[str, Any]:
    (folder / "reward.py").write_text(REWARD)
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "held.jsonl").write_text(json.dumps({"prompt": "Say no", "answer": "o"}) + "\n")
    return {
        "model": "tiny",
        "prompts": {"train": "train.jsonl", "held_out": "held.jsonl", "chat": chat},
        "rollout": {"prompts_per_step": 2, "group_size": 6, "max_new_tokens": 5},
        "objective": {"kl": {"beta": 0.0}},
        "training": {"steps": 1},
        "evaluate": {"samples": 6, "temperature": 1.0, "at_start": False, "at_end": False},
        "rewards": [
            {"name": "reward.py:reward", "label": "own", "normalise": "group", "workers": 1},
            {"name": "keywords", "settings": {"words": ["a", "the"]}, "weight": 0.5},
        ],
        "run": {"dir": str(folder / "run"), "sinks": [], "save_model": False},
    }


@pytest.mark.parametrize("chat", [False, True])
def test_the_same_value_in_training_eval_score_and_check_reward(
    chat: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = project(tmp_path, chat=chat)
    loaded = load(tree, base=tmp_path)
    loop.train(setup.assemble(read_inputs(loaded)))
    trained = [g.group for g in read_rollouts(tmp_path / "run" / "rollouts" / "step-000001.parquet")]
    evaluated = evaluate_model(loaded).groups
    examined = check_reward(Source(reward=str(tmp_path / "run"))).measured.of_kind("sampled")
    recorded = [verdict.parts for group in trained for verdict in group.verdicts_G]
    assert [asked.verdict.parts for asked in examined] == recorded
    monkeypatch.chdir(tmp_path)
    for groups in (trained, evaluated):
        rows, verdicts = [], []
        for group in groups:
            asked = (
                group.prompt.text
                if group.prompt.messages is None
                else [dict(m) for m in group.prompt.messages]
            )
            for rollout, verdict in zip(group.rollouts_G, group.verdicts_G, strict=True):
                rows.append({**group.prompt.columns, "prompt": asked, "completion": rollout.text})
                verdicts.append(verdict)
        assert len({v.parts["own"] for v in verdicts}) > 2
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        score_to_file("reward.py:reward", Path("rows.jsonl"), Path("scored.jsonl"))
        scored = [json.loads(line) for line in Path("scored.jsonl").read_text().splitlines()]
        assert [line["reward"] for line in scored] == [v.parts["own"] for v in verdicts]
        both = score_rows(build(loaded.config.rewards, base=tmp_path), rows)
        assert [v.parts for v in both] == [v.parts for v in verdicts]
        if groups is evaluated:  # outside training nothing is normalised, so the totals agree too
            assert [v.reward for v in both] == [v.reward for v in verdicts]


@pytest.mark.parametrize(
    "place", [lambda r, b: r.score_batch(b), lambda r, b: r.score_batch(b, training=True)]
)
def test_training_changes_the_total_and_never_the_part(place: Callable[..., Any]) -> None:
    from groupwise.rewards.batch import Batch

    config = RewardConfig(name="keywords", settings={"words": ["a", "the"]}, normalise="group")
    texts = ["a", "a the", ""]
    batch = Batch(prompts=["q"] * 3, completions=texts, completion_ids=None, stop_reasons=None, columns={})
    assert [v.parts["keywords"] for v in place(build([config], base=Path()), batch)] == [0.5, 1.0, 0.0]
