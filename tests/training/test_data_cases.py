"""Faults that other trainers had with their data, each as it was seen: cases e02, e03, e04, e05, e06 and e08."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from groupwise.config import load
from groupwise.config.prompts import PromptsConfig
from groupwise.errors import CheckpointError, DataError
from groupwise.model.load import Policy
from groupwise.prompts import encode, rows_from
from groupwise.records.rollout_file import read_rollouts
from groupwise.training.inputs import read_inputs
from groupwise.training.loop import train
from groupwise.training.setup import Run


def zero(completions: list[str], **columns: Any) -> list[float]:
    return [float(len(text) % 2) for text in completions]


def inputs_of(folder: Path, prompts: dict[str, Any], rewards: list[Any] | None = None) -> Any:
    return read_inputs(load({"prompts": prompts, "rewards": rewards or ["numeric"]}, base=folder))


def test_e02_a_cut_prompt_keeps_its_frame_and_begin_and_is_counted(policy: Policy) -> None:
    question = " ".join(f"number {i}" for i in range(40))
    config = PromptsConfig(chat=True, system_prompt="Be brief.", too_long="truncate")
    tokenizer = policy.tokenizer
    [whole], _ = encode(rows_from([{"prompt": question}], source="x"), config, tokenizer, limit_tokens=500)
    [frame], _ = encode(rows_from([{"prompt": "-"}], source="x"), config, tokenizer, limit_tokens=500)
    limit = len(frame.token_ids) + 20
    assert len(whole.token_ids) > limit
    [cut], report = encode(
        rows_from([{"prompt": question}], source="x"), config, tokenizer, limit_tokens=limit
    )
    assert (report.truncated, len(cut.token_ids) <= limit) == (1, True)
    # The system turn stands whole at the beginning, and the start of the model's turn at the end.
    kept = 0
    while cut.token_ids[kept] == whole.token_ids[kept]:
        kept += 1
    assert "Be brief." in tokenizer.decode(whole.token_ids[:kept])
    assert cut.token_ids[-3:].tolist() == whole.token_ids[-3:].tolist()
    assert not set(cut.token_ids.tolist()) & ({tokenizer.pad_token_id} - set(whole.token_ids.tolist()))
    with pytest.raises(DataError, match="1 of 1 rows are over it"):  # never silently
        encode(
            rows_from([{"prompt": question}], source="x"),
            config.model_copy(update={"too_long": "error"}),
            tokenizer,
            limit_tokens=limit,
        )


def test_e03_rows_of_one_text_and_rows_of_two_sources_are_groups_of_their_own(
    tmp_path: Path, tiny_run: Callable[..., Run]
) -> None:
    run = tiny_run(
        reward=zero,
        rows=[{"prompt": "1 + 1?", "gold": 1}, {"prompt": "1 + 1?", "gold": 2}],
        rollout={"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 4},
        training={"steps": 1, "learning_rate": 0.0},
    )
    groups = read_rollouts(train(run).folder / "rollouts/step-000001.parquet")
    assert sorted(g.group.prompt.columns["gold"] for g in groups) == [1, 2]
    assert [len(g.group.rollouts_G) for g in groups] == [2, 2]
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text('{"id": 0, "prompt": "1 + 1?", "answer": "2"}\n')
    found = inputs_of(tmp_path, {"train": ["a.jsonl", "b.jsonl"]})
    assert [row.id for row in found.train] == ["a.jsonl:0", "b.jsonl:0"]


def test_e04_columns_are_checked_in_every_file_of_every_split_before_a_model_is_loaded(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    (tmp_path / "b.jsonl").write_text('{"prompt": "2 + 2?", "answer": "4"}\n')
    (tmp_path / "c.jsonl").write_text('{"prompt": "2 + 2?", "gold": "4"}\n')
    (tmp_path / "d.jsonl").write_text('{"prompt": null, "answer": "4"}\n')
    for prompts, said in (
        (
            {"train": "a.jsonl"},
            "a.jsonl line 1: no column 'prompt'; the row has question, answer; to use another, set",
        ),
        ({"train": ["b.jsonl", "a.jsonl"]}, "a.jsonl line 1: no column 'prompt'"),
        (
            {"train": ["b.jsonl", "c.jsonl"]},
            "c.jsonl: the reward 'numeric' needs the column 'answer', but there are gold",
        ),
        (
            {"train": "b.jsonl", "held_out": "c.jsonl"},
            "c.jsonl: the reward 'numeric' needs the column 'answer'",
        ),
        ({"train": "d.jsonl"}, "d.jsonl line 1: the prompt (column 'prompt') is null"),
    ):
        with pytest.raises(DataError) as caught:
            inputs_of(tmp_path, prompts)
        assert said in str(caught.value)
    mapped = {"train": ["b.jsonl", {"source": "a.jsonl", "columns": {"prompt": "question"}}]}
    assert len(inputs_of(tmp_path, mapped).train) == 2


def test_e05_what_is_null_in_a_table_reaches_the_reward_as_none(
    tmp_path: Path, tiny_run: Callable[..., Run]
) -> None:
    rows = [
        {"prompt": "a", "gold": 1, "extra": {"level": 3}},
        {"prompt": "b", "gold": None, "extra": None},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    seen: list[tuple[Any, Any]] = []

    def reward(completions: list[str], gold: list[Any], extra: list[Any], **columns: Any) -> list[float]:
        seen.extend(zip(gold, extra, strict=True))
        return [0.0] * len(completions)

    tree = {
        "model": "tiny",
        "prompts": {"train": "rows.parquet"},
        "rollout": {"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 3},
        "objective": {"kl": {"beta": 0.0}},
        "training": {"steps": 1},
        "run": {"dir": str(tmp_path / "run"), "sinks": [], "save_model": False},
    }
    from rich.console import Console

    from groupwise.training.setup import assemble

    inputs = read_inputs(load(tree, base=tmp_path), rewards=[reward])
    result = train(assemble(inputs, console=Console(quiet=True)))
    assert Counter(json.dumps(pair) for pair in seen) == {'[1, {"level": 3}]': 2, "[null, null]": 2}
    assert all(type(gold) in (int, type(None)) for gold, _ in seen)
    manifest = json.loads((result.folder / "manifest.json").read_text())
    assert set(manifest["data"]) == {"rows.parquet"}  # a file, so not taken for rows given in Python
    assert manifest["python_rows"] == {}


def test_e06_records_end_at_line_feeds_alone(tmp_path: Path) -> None:
    lines = ['{"prompt": "a\u2028b", "answer": "1"}', '{"prompt": "c\u0085d", "answer": "2"}']
    lines += ['{"prompt": "e", "answer": "3"}', '{"prompt": "f", "answer": "4"}']
    (tmp_path / "rows.jsonl").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode() + b"\r\n\r\n")
    found = inputs_of(tmp_path, {"train": "rows.jsonl"})
    assert [row.columns["prompt"] for row in found.train] == ["a\u2028b", "c\u0085d", "e", "f"]
    (tmp_path / "bad.jsonl").write_text("\n".join([*lines[2:], "", "{not json"]))
    with pytest.raises(DataError, match=r"bad\.jsonl line 4: not JSON"):
        inputs_of(tmp_path, {"train": "bad.jsonl"})


@pytest.mark.parametrize("drop_last", [False, True])
def test_e08_five_prompts_two_a_step_for_two_epochs_and_an_evaluation_of_three(
    tiny_run: Callable[..., Run], tmp_path: Path, drop_last: bool
) -> None:
    from rich.console import Console

    from groupwise.training.setup import assemble

    tree = {
        "model": "tiny",
        "prompts": {"drop_last": drop_last},
        "rollout": {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 3},
        "objective": {"kl": {"beta": 0.0}},
        "training": {"epochs": 2, "learning_rate": 0.0},
        "evaluate": {"at_start": False},
        "run": {"dir": str(tmp_path / "run"), "sinks": [], "save_model": False},
    }
    rows = [{"prompt": f"Number {i}?"} for i in range(5)]
    held_out = [{"prompt": f"Test {i}?"} for i in range(3)]
    inputs = read_inputs(load(tree), rewards=[zero], train=rows, held_out=held_out)
    result = train(assemble(inputs, console=Console(quiet=True)))
    batches = [read_rollouts(path) for path in sorted(result.folder.glob("rollouts/*.parquet"))]
    # Two batches of two and one of one, each epoch; or the one left out. No group is ever incomplete.
    assert [len(groups) for groups in batches] == ([2, 2] if drop_last else [2, 2, 1]) * 2
    assert {len(g.group.rollouts_G) for groups in batches for g in groups} == {4}
    used = Counter(g.group.prompt.id for groups in batches for g in groups)
    assert sum(used.values()) == (8 if drop_last else 10)
    if not drop_last:
        assert set(used.values()) == {2}  # every row once per epoch
    # The evaluation has one response to each of three rows, whatever the training's group size.
    assert result.series("eval/response_count") == [3.0]


def test_a_run_remembers_the_rows_of_a_function_and_notices_others(tmp_path: Path) -> None:
    import groupwise

    maker = tmp_path / "maker.py"
    maker.write_text(
        'def rows(*, start=0):\n    return [{"prompt": f"Number {i + start}?"} for i in range(4)]\n'
    )
    tree: dict[str, Any] = {
        "model": "tiny",
        "prompts": {"train": {"source": "maker.py:rows", "settings": {"start": 1}}},
        "rollout": {"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 3},
        "objective": {"kl": {"beta": 0.0}},
        "training": {"steps": 2},
        "run": {"dir": str(tmp_path / "run"), "sinks": [], "save_model": False, "base": str(tmp_path)},
    }
    groupwise.train(tree, rewards=[zero])
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["data"]["maker.py:rows"]["rows"] == 4
    result = groupwise.train(resume=tmp_path / "run", overrides="training.steps=3", rewards=[zero])
    assert result.metrics[-1]["step"] == 3
    # The module was imported once, so another function stands in for a changed file.
    manifest["data"]["maker.py:rows"]["sha256"] = "0" * 64
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(
        CheckpointError, match=r"the rows of maker\.py:rows are not those that the run .* started with"
    ):
        groupwise.train(resume=tmp_path / "run", overrides="training.steps=4", rewards=[zero])
