"""The entry for Python: what it takes, and one sentence for what it does not."""

from __future__ import annotations

from collections import UserList
from pathlib import Path
from typing import Any

import pytest

import groupwise
from groupwise.errors import ConfigError

ROWS = [{"prompt": "One:"}, {"prompt": "Two:"}]


def letters(completions: list[str], **columns: Any) -> list[float]:
    return [float(len(text)) for text in completions]


class Frame:
    """What tells a table of pandas."""

    iloc = None


def small(tmp_path: Path) -> dict[str, Any]:
    return {
        "model": "tiny",
        "rollout": {"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 2},
        "objective": {"kl": {"beta": 0.0}},
        "training": {"steps": 2},
        "run": {"dir": str(tmp_path / "run"), "sinks": [], "save_model": False},
    }


def test_a_bare_function_and_a_bare_word(tmp_path: Path) -> None:
    result = groupwise.train(small(tmp_path), "training.steps=1", rewards=letters, train=ROWS)
    assert len(result.series("reward/mean")) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"config": None}, "give a configuration, or resume= with a run folder; one of the two"),
        ({"config": []}, r"config is of the type list \(\[\]\)"),
        ({"rewards": "numeric"}, "rewards is of the type str .* name built-in scorers in the configuration"),
        ({"rewards": None}, "rewards is None; give a list"),
        ({"rewards": 5}, r"rewards is of the type int \(5\)"),
        ({"rewards": {letters: 2}}, "rewards is of the type dict"),
        ({"rewards": [letters, 2]}, "reward function 1 is the number 2"),
        ({"overrides": {"training.steps": 1}}, r"overrides is of the type dict .*\['training.steps=10'\]"),
        ({"overrides": [1]}, "overrides is of the type list"),
        ({"overrides": None}, "overrides is None"),
        ({"train": Path("rows.jsonl")}, "train is the text or path 'rows.jsonl'.* as prompts.train"),
        ({"train": "rows.jsonl"}, "train is the text or path 'rows.jsonl'"),
        ({"train": 5}, r"train is of the type int \(5\), but rows are a list of mappings"),
        ({"train": ROWS[0]}, "train is of the type dict"),
        ({"train": Frame()}, r"train is of the type Frame .*: train.to_dict\('records'\)"),
        ({"held_out": Path("x")}, "held_out is the text or path 'x'.* as prompts.held_out"),
    ],
)
def test_wrong_arguments_have_a_sentence(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    right: dict[str, Any] = {"config": small(tmp_path), "rewards": [letters], "train": UserList(ROWS)}
    arguments = {**right, **given}
    with pytest.raises(ConfigError, match=said) as caught:
        groupwise.train(arguments.pop("config"), **arguments)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
