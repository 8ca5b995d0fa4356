from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.config import LoadedConfig, load
from groupwise.errors import ConfigError
from groupwise.workbench.sample import sample_group

REWARD = """
def letters(completions, **columns):
    completions = [c if isinstance(c, str) else c[0]["content"] for c in completions]
    return [sum(c.islower() for c in text) / max(len(text), 1) for text in completions]
"""


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedConfig:
    (tmp_path / "reward.py").write_text(REWARD)
    rows = [{"prompt": "first"}, {"prompt": [{"role": "user", "content": "second"}]}, {"prompt": "x " * 600}]
    (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    tree = {
        "model": "tiny",
        "prompts": {"train": "train.jsonl", "too_long": "truncate"},
        "rewards": ["reward.py:letters"],
        "rollout": {"group_size": 3, "max_new_tokens": 4},
    }
    return load(tree, base=tmp_path)


def test_a_row_is_answered_as_often_as_the_group_is_large(loaded: LoadedConfig) -> None:
    lines = sample_group(loaded, row=0)
    assert lines[:3] == ["tiny: 3 responses at temperature 1, up to 4 tokens, to", "  | first", ""]
    heads = [line for line in lines if line.startswith("#")]
    assert len(heads) == 3
    # (r - mean) / (std + eps) sums to 0 within a group; each is shown with three decimals.
    assert sum(float(head.split("advantage ")[1].split()[0]) for head in heads) == pytest.approx(
        0, abs=0.0016
    )
    assert sample_group(loaded, row=0) == lines
    assert sample_group(loaded, row=1)[1] == "  | second"  # the last turn of a chat


def test_a_prompt_that_was_cut_is_noted(loaded: LoadedConfig) -> None:
    # 512 tokens of context less 4 new ones.
    note = "note: 1 of 1 rows: over 508 tokens, cut in the middle (prompts.too_long: truncate)."
    assert note in sample_group(loaded, row=2)
    assert not [line for line in sample_group(loaded, row=0) if line.startswith("note")]


def test_equal_rewards_are_said_to_teach_nothing(loaded: LoadedConfig) -> None:
    flat = load(loaded, ["rewards=[numeric]"])
    lines = sample_group(flat, prompt="2 + 2 =", columns=["answer=5000"])
    assert lines[-1] == "The rewards are all equal, so this group teaches nothing."
    assert all("reward 0 (numeric 0)  advantage +0.000" in line for line in lines if line.startswith("#"))


def test_a_text_needs_no_columns_that_a_row_may_leave_null(loaded: LoadedConfig) -> None:
    words = ["prompts.columns={system: s, history: h, max_new_tokens: m}", "prompts.chat=true"]
    chat = load(loaded, [*words, "prompts.train=null"])
    plain = load(loaded, ["prompts.chat=true", "prompts.train=null"])
    assert sample_group(chat, prompt="2 + 2 =") == sample_group(plain, prompt="2 + 2 =")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "--prompt TEXT or --row N"),
        ({"prompt": "a", "row": 0}, "one of them"),
        ({"row": 9}, r"--row 9: train\.jsonl has rows 0 to 2"),
        ({"row": 0, "held_out": True}, "leave --held-out out"),
        ({"row": 0, "columns": ["answer=4"]}, "--column goes with --prompt"),
        ({"prompt": "a", "columns": ["answer"]}, "not of the form NAME=VALUE"),
    ],
)
def test_what_cannot_be_meant_is_refused(loaded: LoadedConfig, given: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        sample_group(loaded, **given)  # type: ignore[arg-type]
