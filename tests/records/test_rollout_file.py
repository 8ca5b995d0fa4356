import dataclasses
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from groupwise.errors import RunFolderError
from groupwise.records import TrainingGroup
from groupwise.records.rollout_file import read_rollouts, write_rollouts
from groupwise.records.rollout_schema import SCHEMA
from tests.records.examples import two_groups, with_critic_and_greedy


def exact(value: object) -> object:
    """Any noun as plain values in which every bit of every array shows."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, float):
        return value.hex()
    if dataclasses.is_dataclass(value):
        return {f.name: exact(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: exact(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return (type(value).__name__, [exact(inner) for inner in value])
    return value


@pytest.mark.parametrize("reference", [True, False])
def test_what_is_written_is_read_back_bit_for_bit(tmp_path: Path, reference: bool) -> None:
    groups = two_groups(reference=reference)
    write_rollouts(tmp_path / "r.parquet", groups, step=3)
    back = read_rollouts(tmp_path / "r.parquet")
    assert [exact(g) for g in back] == [exact(g) for g in groups]
    assert list(back[1].group.verdicts_G[0].parts) == ["z", "a"]  # the order of the rewards too


def test_the_same_prompt_drawn_twice_stays_two_groups(tmp_path: Path) -> None:
    groups = two_groups()
    assert groups[1].group.prompt.id == groups[2].group.prompt.id
    write_rollouts(tmp_path / "r.parquet", groups, step=3)
    assert [len(g.group.rollouts_G) for g in read_rollouts(tmp_path / "r.parquet")] == [3, 2, 2]


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    write_rollouts(tmp_path / "a.parquet", two_groups(), step=3)
    write_rollouts(tmp_path / "b.parquet", two_groups(), step=3)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert {f.name for f in tmp_path.iterdir()} == {"a.parquet", "b.parquet"}  # nothing is left beside


def test_reading_and_writing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    write_rollouts(tmp_path / "a.parquet", two_groups(), step=3)
    write_rollouts(tmp_path / "b.parquet", read_rollouts(tmp_path / "a.parquet"), step=3)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_columns_hold_what_their_names_say(tmp_path: Path) -> None:
    write_rollouts(tmp_path / "r.parquet", two_groups(), step=12)
    rows = pq.read_table(tmp_path / "r.parquet").to_pylist()
    assert [(r["step"], r["group"], r["group_index"]) for r in rows] == [
        (12, 0, 0),
        (12, 0, 1),
        (12, 0, 2),
        (12, 1, 0),
        (12, 1, 1),
        (12, 2, 0),
        (12, 2, 1),
    ]
    first, second = rows[0], rows[1]
    assert first["reward"] == 0.30000000000000004
    assert second["reward"] is None
    assert second["failure"] == "exact: raised ValueError"
    assert first["parts"] == [("exact", 0.0), ("format", None)]  # zero is a value, null is its absence
    assert first["token_ids"] == [0, 7, 14, 21, 28, 35]
    assert first["prompt_token_ids"] == [1, 2, 2147483647]
    assert first["trainable"] == [True, True, False, True, True, False]
    assert json.loads(first["messages"])[1] == {"role": "user", "content": "2+2? ½"}
    assert rows[3]["messages"] is None
    assert json.loads(rows[3]["columns"]) == {}
    assert first["stop_reason"] == "length"
    assert [r["policy_version"] for r in rows[:3]] == [41, 42, 43]
    assert first["kept_mass"] is None
    assert rows[3]["entropy"] is None
    assert (first["advantage"], first["token_advantage"]) == (1 / 3, None)  # one number holds for all
    assert (second["advantage"], second["token_advantage"]) == (None, [-0.0, 5e-324, 0.0])
    assert rows[4]["ref_logprob"][1:] == pytest.approx(
        [-0.25, -104.22208], abs=1e-5
    )  # 1e-45 - 0.25; -103.97 - 0.25


def test_every_column_explains_itself_in_the_file(tmp_path: Path) -> None:
    write_rollouts(tmp_path / "r.parquet", two_groups(), step=1)
    schema = pq.read_schema(tmp_path / "r.parquet")
    assert schema.names == SCHEMA.names
    for field in schema:
        assert field.metadata[b"description"].decode().endswith("."), field.name


def test_no_groups_give_a_file_without_rows(tmp_path: Path) -> None:
    write_rollouts(tmp_path / "r.parquet", [], step=1)
    assert read_rollouts(tmp_path / "r.parquet") == []
    assert pq.read_schema(tmp_path / "r.parquet").equals(SCHEMA)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.parquet"
    write_rollouts(path, two_groups(), step=1)
    before = path.read_bytes()

    def full_disk(table: pa.Table, file: object, **_: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full_disk)
    with pytest.raises(RunFolderError, match=r"r\.parquet cannot be written: No space left on device; free"):
        write_rollouts(path, two_groups(), step=2)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_misfits_are_refused_by_name(tmp_path: Path) -> None:
    group, other, _ = two_groups()
    path = tmp_path / "r.parquet"
    wrong: list[tuple[TrainingGroup, str]] = [
        (
            dataclasses.replace(group, advantages_GT=group.advantages_GT[:2]),
            "3 rollouts but 2 entries in advantages",
        ),
        (dataclasses.replace(group, in_loss_G=np.ones(4, dtype=bool)), "3 rollouts but 4 entries in in_loss"),
        (
            dataclasses.replace(group, old_logprobs_GT=group.old_logprobs_GT[:2]),
            "3 rollouts but 2 entries in old",
        ),
        (
            dataclasses.replace(other, advantages_GT=tuple(reversed(other.advantages_GT))),
            "rollout 0 has 2 tokens but 3 advantages",
        ),
        (
            dataclasses.replace(other, old_logprobs_GT=tuple(reversed(other.old_logprobs_GT))),
            "rollout 0 has 2 tokens but 3 old log-probs",
        ),
        (
            dataclasses.replace(
                other, old_logprobs_GT=tuple(a.astype(np.float64) for a in other.old_logprobs_GT)
            ),
            "old_logprob: an array of float64, but the record holds float32",
        ),
        (
            dataclasses.replace(group, group=dataclasses.replace(group.group, rollouts_G=(), verdicts_G=())),
            "0 rollouts but 3 entries",
        ),
    ]
    for broken, message in wrong:
        with pytest.raises(ValueError, match=message):
            write_rollouts(path, [broken], step=1)
    assert not path.exists()


def test_columns_that_json_cannot_hold_are_named(tmp_path: Path) -> None:
    group = two_groups()[1]
    prompt = dataclasses.replace(group.group.prompt, columns={"when": {1, 2}})
    with pytest.raises(RunFolderError, match=r"prompt b\.jsonl:9: its columns cannot be written as JSON"):
        write_rollouts(
            tmp_path / "r.parquet",
            [dataclasses.replace(group, group=dataclasses.replace(group.group, prompt=prompt))],
            step=1,
        )


def test_half_a_surrogate_pair_is_named(tmp_path: Path) -> None:
    group = two_groups()[1]
    prompt = dataclasses.replace(group.group.prompt, text="x\ud83dy")
    with pytest.raises(RunFolderError, match=r"the column prompt holds .*surrogate"):
        write_rollouts(
            tmp_path / "r.parquet",
            [dataclasses.replace(group, group=dataclasses.replace(group.group, prompt=prompt))],
            step=1,
        )


def test_what_is_not_a_rollout_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="there is no rollout file"):
        read_rollouts(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("not parquet at all")
    with pytest.raises(RunFolderError, match="cannot be read as Parquet"):
        read_rollouts(tmp_path / "text.parquet")
    write_rollouts(tmp_path / "whole.parquet", two_groups(), step=1)
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "whole.parquet").read_bytes()[:-100])
    with pytest.raises(RunFolderError, match="cannot be read as Parquet"):
        read_rollouts(tmp_path / "cut.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(RunFolderError, match="not one of rollouts that groupwise wrote"):
        read_rollouts(tmp_path / "other.parquet")
    newer = pa.table({"a": [1]}).replace_schema_metadata({b"groupwise.rollouts.schema_version": b"99"})
    pq.write_table(newer, tmp_path / "newer.parquet")
    with pytest.raises(RunFolderError, match="has schema version 99, and this groupwise reads up to 4"):
        read_rollouts(tmp_path / "newer.parquet")
    with pytest.raises(RunFolderError, match=r"cannot be written: No such file or directory"):
        write_rollouts(tmp_path / "no" / "r.parquet", two_groups(), step=1)


def test_a_file_of_the_first_version_is_read(tmp_path: Path) -> None:
    [group] = two_groups()[1:2]
    write_rollouts(tmp_path / "new.parquet", [group], step=1)
    old = pq.read_table(tmp_path / "new.parquet").drop_columns(
        ["token_advantage", "terms", "greedy", "value", "value_target", "inserted", "max_new_tokens"]
    )
    old = old.replace_schema_metadata({b"groupwise.rollouts.schema_version": b"1"})
    pq.write_table(old, tmp_path / "old.parquet")
    assert [exact(g) for g in read_rollouts(tmp_path / "old.parquet")] == [exact(group)]


def test_a_file_of_the_second_version_is_read(tmp_path: Path) -> None:
    [group] = two_groups()[:1]
    write_rollouts(tmp_path / "new.parquet", [group], step=1)
    old = pq.read_table(tmp_path / "new.parquet").drop_columns(
        ["greedy", "value", "value_target", "inserted", "max_new_tokens"]
    )
    old = old.replace_schema_metadata({b"groupwise.rollouts.schema_version": b"2"})
    pq.write_table(old, tmp_path / "old.parquet")
    assert [exact(g) for g in read_rollouts(tmp_path / "old.parquet")] == [exact(group)]


def test_a_file_of_the_third_version_is_read(tmp_path: Path) -> None:
    [group] = two_groups()[:1]
    write_rollouts(tmp_path / "new.parquet", [group], step=1)
    old = pq.read_table(tmp_path / "new.parquet").drop_columns(["inserted", "max_new_tokens"])
    old = old.replace_schema_metadata({b"groupwise.rollouts.schema_version": b"3"})
    pq.write_table(old, tmp_path / "old.parquet")
    assert [exact(g) for g in read_rollouts(tmp_path / "old.parquet")] == [exact(group)]


def test_a_note_and_a_limit_of_the_row_are_kept(tmp_path: Path) -> None:
    [entry] = two_groups()[:1]
    taught = dataclasses.replace(entry.group.rollouts_G[0], inserted_T=np.arange(6) % 2 == 0)
    group = dataclasses.replace(
        entry.group,
        prompt=dataclasses.replace(entry.group.prompt, max_new_tokens=6),
        rollouts_G=(taught, *entry.group.rollouts_G[1:]),
    )
    entry = dataclasses.replace(entry, group=group)
    write_rollouts(tmp_path / "r.parquet", [entry], step=3)
    assert [exact(g) for g in read_rollouts(tmp_path / "r.parquet")] == [exact(entry)]


def test_a_greedy_baseline_and_a_critics_values_are_kept(tmp_path: Path) -> None:
    plain = two_groups()
    groups = [with_critic_and_greedy(plain[0]), plain[1], with_critic_and_greedy(plain[2])]
    write_rollouts(tmp_path / "r.parquet", groups, step=3)
    assert [exact(g) for g in read_rollouts(tmp_path / "r.parquet")] == [exact(g) for g in groups]
    rows = pq.read_table(tmp_path / "r.parquet").to_pylist()
    assert [row["greedy"] for row in rows] == [False] * 3 + [True] + [False] * 4 + [True]
    greedy = rows[3]
    assert (greedy["group_index"], greedy["in_loss"], greedy["advantage"]) == (3, False, 0.0)
    assert greedy["reward"] is None
    assert all(np.isnan(greedy["old_logprob"]))
    assert rows[4]["value"] is None
