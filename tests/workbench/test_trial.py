from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.config import load
from groupwise.errors import ConfigError, DataError, RunFolderError
from groupwise.prompts.load import rows_from
from groupwise.workbench.evaluation import evaluate_model
from groupwise.workbench.trial import load_trial, open_source

TINY = {"model": "tiny", "rewards": ["numeric"], "prompts": {"too_long": "drop"}}


def test_notes_count_what_was_left_out_and_nothing_else() -> None:
    rows = rows_from([{"prompt": "a b"}, {"prompt": "x " * 600}, {"prompt": "a b"}], source="rows")
    # The tiny model has a context of 512 tokens; 8 new ones leave 504.
    trial = load_trial(load(TINY), rows, new_tokens=8)
    assert [prompt.id for prompt in trial.prompts] == ["rows:0", "rows:2"]
    assert trial.notes == [
        "1 of 3 rows: over 504 tokens, left out (prompts.too_long: drop).",
        "1 of 3 rows: the same as an earlier one, each kept as a prompt of its own.",
    ]
    assert load_trial(load(TINY), rows[:1], new_tokens=8).notes == []


def test_evaluation_shows_what_was_left_out(tmp_path: Path) -> None:
    rows = [{"prompt": "1 + 1 =", "answer": "2"}, {"prompt": "x " * 600, "answer": "3"}]
    (tmp_path / "held_out.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    tree = {**TINY, "prompts": {"too_long": "drop", "held_out": "held_out.jsonl"}}
    found = evaluate_model(load(tree, ["rollout.max_new_tokens=4"], base=tmp_path))
    assert found.lines()[1:3] == [
        "data         held_out.jsonl: 1 prompt, greedy",
        "note         1 of 2 rows: over 508 tokens, left out (prompts.too_long: drop).",
    ]


def test_prompts_that_cannot_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="512 new ones do not fit the 512 tokens"):
        load_trial(load(TINY), rows_from([{"prompt": "a"}], source="rows"), new_tokens=512)
    with pytest.raises(DataError, match="all 1 rows are over the limit of 504 tokens"):
        load_trial(load(TINY), rows_from([{"prompt": "x " * 600}], source="rows"), new_tokens=8)


def a_run(path: Path) -> Path:
    (path / "model").mkdir(parents=True)
    (path / "model" / "config.json").write_text("{}")
    (path / "config.yaml").write_text("model: tiny\nlora: {rank: 4}\nrewards: [numeric]\n")
    return path


def test_a_run_folder_means_the_model_it_trained_without_its_adapter(tmp_path: Path) -> None:
    run = a_run(tmp_path / "it's a run")
    config = open_source(str(run)).config
    assert config.model.name == str(run / "model")  # the merged weights
    assert config.lora is None
    # A file means its own model, and --model replaces either; a word wins over all of them.
    assert open_source(str(run / "config.yaml")).config.model.name == "tiny"
    other = a_run(tmp_path / "other")
    assert open_source(str(run), model=str(other)).config.model.name == str(other / "model")
    assert open_source(str(run), model="someone/model").config.model.name == "someone/model"
    assert open_source(str(run), ["model=tiny"]).config.model.name == "tiny"


def test_a_folder_that_is_no_run_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"holds no config\.yaml, so it is not a run folder"):
        open_source(str(tmp_path))
    (tmp_path / "config.yaml").write_text("model: tiny\n")
    with pytest.raises(
        RunFolderError, match=r"has no trained model in model/.*train --resume .* another --model"
    ):
        open_source(str(tmp_path))
    assert open_source(str(tmp_path), model="tiny").config.model.name == "tiny"
