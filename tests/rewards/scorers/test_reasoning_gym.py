from pathlib import Path
from typing import Any

import pytest

from groupwise.config import load
from groupwise.errors import DataError
from groupwise.prompts.sources import read_sources
from groupwise.rewards.scorers.reasoning_gym import reasoning_gym
from groupwise.training.inputs import read_inputs

pytest.importorskip("reasoning_gym")

SOURCE = "reasoning-gym:leg_counting"


@pytest.fixture(scope="module")
def row() -> dict[str, Any]:
    config = load({"prompts": {"train": {"source": SOURCE, "size": 1}}}).config
    return dict(read_sources(config.prompts.train, Path()).rows[0].columns)


def scored(row: dict[str, Any], text: str, **settings: Any) -> float | None:
    [score] = reasoning_gym([text], [row["answer"]], [row["task"]], [row["metadata"]], **settings)
    return score


def test_the_last_answer_between_the_tags_is_what_the_task_scores(row: dict[str, Any]) -> None:
    right = row["answer"]
    assert scored(row, f"I count. <answer> {right} </answer>") == 1.0
    assert scored(row, f"<answer>{right}</answer> no, <answer>{int(right) + 1}</answer>") < 1.0  # type: ignore[operator]
    assert scored(row, f"<answer>1</answer> no,\n<answer>\n{right}\n</answer>") == 1.0


def test_without_tags_nothing_is_paid_unless_the_whole_is_the_answer(row: dict[str, Any]) -> None:
    assert scored(row, row["answer"]) == 0.0
    assert scored(row, f" {row['answer']} ", whole=True) == 1.0
    assert scored(row, "") == 0.0


def test_rows_without_a_task_are_left_to_other_rewards(row: dict[str, Any]) -> None:
    assert reasoning_gym(["x"], [None], [None], [None]) == [None]


def test_other_data_without_the_columns_is_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "1 + 1", "answer": "2"}\n')
    tree = {"prompts": {"train": [{"source": SOURCE, "size": 2}, "a.jsonl"]}, "rewards": ["reasoning_gym"]}
    with pytest.raises(DataError, match=r"a\.jsonl: the reward 'reasoning_gym' needs the column 'task'"):
        read_inputs(load(tree, base=tmp_path))
