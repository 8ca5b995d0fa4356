"""Sources by their names: what they are taken for, what they give, and what is said of those that give nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import load
from groupwise.config.prompts import SourceConfig
from groupwise.errors import ConfigError, DataError, GroupwiseError
from groupwise.prompts.sources import Read, read_sources

MAKER = """
def squares(*, count=3, offset=0):
    for n in range(count):
        yield {"question": f"{n} squared?", "gold": n * n + offset, "when": __import__("datetime").date(2026, 1, 2)}

def endless():
    n = 0
    while True:
        n += 1
        yield {"prompt": str(n)}

def text(): return "prompt"
def none(): return []
def numbers(): return [1, 2]
def broken(): raise RuntimeError("no disk")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "maker.py").write_text(MAKER)
    (tmp_path / "a.jsonl").write_text(
        '{"question": "1 + 1?", "gold": 2}\n{"question": "2 + 2?", "gold": 4}\n'
    )
    (tmp_path / "b.csv").write_text("prompt,gold\n3 + 3?,6\n")
    return tmp_path


def read(folder: Path, *entries: Any) -> Read:
    return read_sources(load({"prompts": {"train": list(entries)}}).config.prompts.train, folder)


def test_sources_of_several_kinds_in_one_run(folder: Path) -> None:
    found = read(
        folder,
        {"source": "a.jsonl", "columns": {"prompt": "question"}, "add": {"task": None}},
        "b.csv",
        {
            "source": "maker.py:squares",
            "settings": {"count": 2, "offset": 1},
            "columns": {"prompt": "question"},
        },
    )
    assert [row.columns["prompt"] for row in found.rows] == [
        "1 + 1?",
        "2 + 2?",
        "3 + 3?",
        "0 squared?",
        "1 squared?",
    ]
    # Case e03: ids are source and row, so that rows of two sources never meet.
    assert [row.id for row in found.rows] == [
        "a.jsonl:0",
        "a.jsonl:1",
        "b.csv:0",
        "maker.py:squares:0",
        "maker.py:squares:1",
    ]
    assert found.rows[0].columns == {"prompt": "1 + 1?", "gold": 2, "task": None}
    assert found.rows[4].columns == {"prompt": "1 squared?", "gold": 2, "when": "2026-01-02"}
    assert set(found.files) == {"a.jsonl", "b.csv"}
    assert set(found.made) == {"maker.py:squares"}


def test_only_so_many_rows_and_a_function_without_end(folder: Path) -> None:
    found = read(folder, {"source": "a.jsonl", "rows": 1}, {"source": "maker.py:endless", "rows": 4})
    assert [row.source for row in found.rows] == ["a.jsonl", *["maker.py:endless"] * 4]


def test_a_source_twice_under_two_names(folder: Path) -> None:
    found = read(folder, {"source": "b.csv", "name": "one"}, {"source": "b.csv", "name": "two"})
    assert [row.id for row in found.rows] == ["one:0", "two:0"]
    with pytest.raises(ConfigError, match=r"two sources are called 'b\.csv'; give one of them another name"):
        read(folder, "b.csv", "b.csv")


def test_a_folder_that_datasets_saved(folder: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = [{"prompt": f"{n}?", "gold": n} for n in range(5)]
    data = datasets.Dataset.from_list(rows)
    data.save_to_disk(folder / "saved", num_shards=2)
    found = read(folder, "saved")
    assert [row.columns for row in found.rows] == rows
    assert set(found.made) == {"saved"}
    # A selection and an order are kept, though the table behind them is the whole one.
    data.select([4, 1]).save_to_disk(folder / "chosen")
    assert [row.columns["gold"] for row in read(folder, "chosen").rows] == [4, 1]
    datasets.DatasetDict(train=data, test=data.select([0])).save_to_disk(folder / "both")
    assert len(read(folder, {"source": "both", "split": "train"}).rows) == 5
    with pytest.raises(DataError, match="both: which split\\? Set split to one of train, test"):
        read(folder, "both")
    with pytest.raises(DataError, match="no split 'dev': Set split to one of train, test"):
        read(folder, {"source": "both", "split": "dev"})
    with pytest.raises(DataError, match="one data set without splits; remove split: train"):
        read(folder, {"source": "saved", "split": "train"})
    with pytest.raises(DataError, match="saved is a folder, and only a data set of the hub has subsets"):
        read(folder, {"source": "saved", "subset": "main"})


def test_a_data_set_of_the_hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    asked: list[Any] = []

    def load_dataset(name: str, subset: str | None) -> Any:
        asked.append((name, subset))
        data = datasets.Dataset.from_list([{"question": "1?", "n": 1}, {"question": "2?", "n": None}])
        return datasets.DatasetDict(train=data, test=data.select([1]))

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    entry = {"source": "openai/gsm8k", "subset": "main", "split": "train", "columns": {"prompt": "question"}}
    found = read(folder, entry)
    assert asked == [("openai/gsm8k", "main")]
    assert [row.columns for row in found.rows] == [{"prompt": "1?", "n": 1}, {"prompt": "2?", "n": None}]
    with pytest.raises(DataError, match="which split"):
        read(folder, "openai/gsm8k")


def test_the_hub_out_of_reach_is_told_with_the_path_that_is_not_there_either(folder: Path) -> None:
    pytest.importorskip("datasets")
    with pytest.raises(DataError, match="there is no such file or folder here, and the hub did not give it"):
        read(folder, "nobody/nothing-of-the-kind")


def test_tasks_of_reasoning_gym(folder: Path) -> None:
    pytest.importorskip("reasoning_gym")
    entry = {"source": "reasoning-gym:leg_counting", "size": 3, "seed": 7, "settings": {"max_animals": 4}}
    rows = read(folder, entry).rows
    assert len(rows) == 3
    assert rows[0].id == "reasoning-gym:leg_counting:0"
    assert set(rows[0].columns) == {"prompt", "answer", "task", "metadata"}
    assert "legs" in rows[0].columns["prompt"]
    json.dumps(rows[0].columns)  # a record can keep it
    assert [row.columns for row in read(folder, entry).rows] == [row.columns for row in rows]
    other = read(folder, {**entry, "seed": 8}).rows
    assert [row.columns for row in other] != [row.columns for row in rows]
    for wrong, said in (
        ({"source": "reasoning-gym:leg_countin"}, "did you mean 'leg_counting'"),
        ({**entry, "settings": {"max_animal": 4}}, "max_animal"),
        ({**entry, "settings": {"max_animals": 0}}, "see the task's own settings"),
        ({**entry, "size": 3, "settings": {"size": 4}}, "size is given twice, beside settings and in them"),
        (
            {"source": "reasoning-gym:rearc", "size": 1},
            "scores by values that JSON, and so a record, cannot keep",
        ),
    ):
        with pytest.raises(ConfigError, match=said):
            read(folder, wrong)


WRONG: list[tuple[Any, str]] = [
    ("c.jsonl", "there is no file"),
    ("a.json", "did you mean a.jsonl?"),
    ("a", "there is no file"),
    (".", "is a folder that `datasets` did not save (no state.json); name a file in it: a.jsonl, b.csv"),
    ({"source": "a.jsonl", "columns": {"prompt": "questions"}}, "did you mean 'question'?"),
    (
        {"source": "a.jsonl", "columns": {"gold": "question"}},
        "calls 'question' 'gold', but there is a column",
    ),
    ({"source": "a.jsonl", "columns": {"a": "gold", "b": "gold"}}, "columns names the column 'gold' twice"),
    ({"source": "a.jsonl", "add": {"gold": 1}}, "add gives the column 'gold', which rows have already"),
    ("maker.py:square", "did you mean 'squares'?"),
    ("maker.py:text", "the function gave a str; rows are mappings"),
    ("maker.py:none", "there are no rows"),
    ("maker.py:numbers", "maker.py:numbers:0: a int, but a row is a mapping"),
    ("maker.py:broken", "the function failed: RuntimeError: no disk"),
    ({"source": "maker.py:squares", "settings": {"cuont": 2}}, "the function failed: TypeError"),
    ({"source": "a.jsonl", "size": 5}, "size is set, but a.jsonl is no task of reasoning-gym"),
    ({"source": "a.jsonl", "seed": 5}, "seed is set, but a.jsonl is no task of reasoning-gym"),
    ({"source": "a.jsonl", "settings": {"n": 5}}, "neither a function nor a task of reasoning-gym"),
    ({"source": "a.jsonl", "subset": "main"}, "subset is set, but a.jsonl is no data set of the hub"),
    ({"source": "maker.py:squares", "split": "train"}, "split is set, but maker.py:squares is no folder"),
    ({"source": "a.jsonl", "rows": 0}, "prompts.train[0].rows"),
    ({"source": "a.jsonl", "weight": 0}, "prompts.train[0].weight"),
    ({"name": "a"}, "prompts.train[0].source: it is missing"),
    ({"source": "a.jsonl", "wieght": 2}, "did you mean prompts.train[0].weight?"),
    ({"path": "a.jsonl"}, "unknown key prompts.train[0].path"),
]


@pytest.mark.parametrize(("entry", "said"), WRONG, ids=[str(entry)[:50] for entry, _ in WRONG])
def test_a_wrong_source_is_told_with_its_remedy(folder: Path, entry: Any, said: str) -> None:
    with pytest.raises(GroupwiseError) as caught:
        read(folder, entry)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_weights_are_for_every_source_or_none_and_for_training_alone() -> None:
    with pytest.raises(ConfigError, match=r"source 'b\.csv' has no weight, but others have"):
        load({"prompts": {"train": [{"source": "a.csv", "weight": 2}, "b.csv"]}})
    with pytest.raises(ConfigError, match="a weight has no effect here"):
        load({"prompts": {"held_out": [{"source": "a.csv", "weight": 2}]}})


def test_a_source_is_named_shortly_or_in_full_and_changed_from_the_command_line() -> None:
    short = load({"prompts": {"train": "a.jsonl"}}).config.prompts.train
    assert short == (SourceConfig(source="a.jsonl"),)
    assert load({"prompts": {"train": {"source": "a.jsonl"}}}).config.prompts.train == short
    changed = load({"prompts": {"train": ["a.jsonl", "b.jsonl"]}}, ["prompts.train.1.rows=5"]).config
    assert [source.rows for source in changed.prompts.train] == [None, 5]
    assert load({"prompts": {"train": "a.jsonl"}}, ["prompts.train=null"]).config.prompts.train == ()
    assert (
        load({"prompts": {"train": "a.jsonl"}}, ["prompts.train=b.csv"]).config.prompts.train[0].source
        == "b.csv"
    )
