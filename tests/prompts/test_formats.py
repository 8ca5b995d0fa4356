"""Files of every form to the same rows; cases e04, e05 and e06, and wrong files."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from groupwise.errors import DataError
from groupwise.prompts.formats import plain
from groupwise.prompts.load import read_rows

ROWS = [{"prompt": "a, b", "answer": "1"}, {"prompt": 'say "c"\nplease', "answer": "2"}]


def written(folder: Path, ending: str) -> Path:
    path = folder / f"rows{ending}"
    table = pa.Table.from_pylist(ROWS)
    if ending == ".parquet":
        pq.write_table(table, path)
    elif ending == ".feather":
        feather.write_feather(table, path)
    elif ending == ".arrow":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    elif ending == ".json":
        path.write_text(json.dumps(ROWS, indent=2))
    elif ending == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    else:
        comma = "," if ending == ".csv" else "\t"
        fields = [
            comma.join(f'"{value}"' for value in (row["prompt"].replace('"', '""'), row["answer"]))
            for row in ROWS
        ]
        path.write_text("\n".join([f"prompt{comma}answer", *fields]))
    return path


@pytest.mark.parametrize("ending", [".jsonl", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".feather"])
def test_every_form_gives_the_same_rows(tmp_path: Path, ending: str) -> None:
    rows = read_rows(written(tmp_path, ending))
    assert [row.columns for row in rows] == ROWS
    assert [row.id for row in rows] == [f"rows{ending}:0", f"rows{ending}:1"]
    assert read_rows(written(tmp_path, ending).rename(tmp_path / f"ROWS{ending.upper()}"))


def test_an_optional_record_in_one_row_and_a_null_among_whole_numbers(tmp_path: Path) -> None:
    # Case e05: what a row lacks is None, and 1 stays a whole number beside a null.
    table = pa.Table.from_pylist(
        [
            {"prompt": "a", "gold": 1, "extra": {"level": 3, "tags": ["x"]}, "score": 0.5},
            {"prompt": "b", "gold": None, "extra": None, "score": float("nan")},
            {"prompt": "c", "gold": 2, "extra": {"level": None, "tags": None}, "score": None},
        ]
    )
    for name in ("rows.parquet", "rows.feather"):
        path = tmp_path / name
        pq.write_table(table, path) if name.endswith("parquet") else feather.write_feather(table, path)
        rows = [row.columns for row in read_rows(path)]
        assert [row["gold"] for row in rows] == [1, None, 2]
        assert [type(row["gold"]) for row in rows] == [int, type(None), int]
        assert rows[0]["extra"] == {"level": 3, "tags": ["x"]}
        assert rows[1]["extra"] is None
        assert rows[2]["extra"] == {"level": None, "tags": None}
        assert [row["score"] for row in rows] == [0.5, None, None]  # NaN equals nothing, not even itself


def test_whole_numbers_that_pandas_wrote_with_a_null_among_them(tmp_path: Path) -> None:
    # pandas turns 1 and null into 1.0 and NaN unless the column is Int64; the latter stays whole.
    table = pa.table({"prompt": ["a", "b"], "gold": pa.array([1, None], type=pa.int64())})
    pq.write_table(table, tmp_path / "rows.parquet")
    rows = read_rows(tmp_path / "rows.parquet")
    assert rows[0].columns["gold"] == 1
    assert type(rows[0].columns["gold"]) is int


def test_line_separators_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    # Case e06, in the three forms that are text.
    texts = ["one\u2028two", "one\u0085two", "three", "four"]
    lines = "\r\n".join(json.dumps({"prompt": text}, ensure_ascii=False) for text in texts)
    (tmp_path / "rows.jsonl").write_bytes(b"\xef\xbb\xbf" + lines.encode() + b"\r\n\r\n")
    (tmp_path / "rows.csv").write_bytes(b"\xef\xbb\xbfprompt\r\n" + "\r\n".join(texts).encode() + b"\r\n")
    (tmp_path / "rows.json").write_bytes(
        b"\xef\xbb\xbf" + json.dumps([{"prompt": t} for t in texts]).encode()
    )
    for name in ("rows.jsonl", "rows.csv", "rows.json"):
        rows = read_rows(tmp_path / name)
        assert [row.columns["prompt"] for row in rows] == texts, name
    assert [row.line for row in read_rows(tmp_path / "rows.csv")] == [2, 3, 4, 5]


def test_what_is_not_json_becomes_text_or_none() -> None:
    day = datetime.date(2026, 1, 2)
    value = {
        "when": day,
        "n": np.int64(3),
        "x": np.float32(0.5),
        "at": np.array([1, 2]),
        "t": ("a", b"b"),
        4: None,
    }
    assert plain(value, "here") == {
        "when": "2026-01-02",
        "n": 3,
        "x": 0.5,
        "at": [1, 2],
        "t": ["a", "b"],
        "4": None,
    }
    with pytest.raises(DataError, match="here holds bytes that are no text, such as an image"):
        plain({"image": b"\xff\xd8"}, "here")
    with pytest.raises(DataError, match="here holds a object, which is not data"):
        plain([object()], "here")


WRONG: list[tuple[str, bytes, str]] = [
    ("a.json", b"", "a.json: the file is empty; write a list of objects"),
    ("a.json", b"[]", "a.json: the file holds no rows"),
    ("a.json", b'{"data": [{"prompt": "a"}]}', "the list under 'data' may be what is meant"),
    ("a.json", b'[{"prompt": "a"}, 3]', "entry 1 of the list is a number, not an object"),
    ("a.json", b'{"prompt": "a"}\n{"prompt": "b"}\n', "one object per line: call it .jsonl"),
    ("a.json", b'[{"prompt": "a",\n "b": }]', "at character 7 of line 2"),
    ("a.json", b'[{"a": 1, "a": 2}]', "the key 'a' is given twice"),
    ("a.jsonl", b'[{"prompt": "a"}]', "a list, not an object"),
    ("a.csv", b"", "a.csv: the file is empty; write a line of column names"),
    ("a.csv", b"prompt,answer\n", "a.csv: the file holds no rows"),
    ("a.csv", b"prompt,answer\na\n", "a.csv line 2: 1 fields, but there are 2 columns (prompt, answer)"),
    ("a.csv", b"prompt,prompt\na,b\n", "two columns are called 'prompt'"),
    ("a.csv", b"prompt;gold\na;b\n", "one column, called 'prompt;gold'; is ';' what separates fields?"),
    ("a.tsv", b"prompt,gold\na,b\n", "one column, called 'prompt,gold'; is ',' what separates fields?"),
    ("a.csv", b"prompt,\na,b\n", "column 2 has no name"),
    ("a.csv", b'prompt\n"a\n', "a.csv line 2: unexpected end of data"),
    ("a.csv", b"prompt\n\xff\n", "a.csv line 2: not UTF-8"),
    ("a.csv", "prompt\na\n".encode("utf-16"), "the file is UTF-16"),
    ("a.parquet", b"not a table", "a.parquet: not readable as Parquet"),
    ("a.parquet", b"", "a.parquet: "),
    ("a.arrow", b"not a table", "a.arrow: not readable as Arrow"),
    ("a.feather", b"", "a.feather: the file is empty"),
]


@pytest.mark.parametrize(("name", "content", "said"), WRONG, ids=[f"{n} {s[:30]}" for n, _, s in WRONG])
def test_a_wrong_file_is_told_with_its_place(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_rows(tmp_path / name)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_table_with_an_image_or_two_columns_of_one_name_is_told(tmp_path: Path) -> None:
    images: dict[str, Any] = {"prompt": ["a"], "image": [b"\xff\xd8"]}
    pq.write_table(pa.table(images), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="column 'image' holds bytes"):
        read_rows(tmp_path / "a.parquet")
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["x", "x"])
    feather.write_feather(twice.rename_columns(["x", "y"]), tmp_path / "b.feather")
    with pa.OSFile(str(tmp_path / "b.arrow"), "wb") as sink, pa.ipc.new_stream(sink, twice.schema) as writer:
        writer.write_table(twice)
    with pytest.raises(DataError, match="two columns are called 'x'"):
        read_rows(tmp_path / "b.arrow")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64())),
            "column 'x' of .*: .* duplicate keys .*'k'.*; write it otherwise",
        ),
        (
            pa.array([datetime.datetime(2026, 1, 1)], pa.timestamp("us", tz="Nowhere/X")),
            "column 'x' of .*Nowhere/X.*: .*; write it otherwise",
        ),
        (pa.array([10**14], pa.timestamp("s")), "column 'x' of .*: .*; write it otherwise"),
        (pa.array([float("inf")]), ":0, column 'x' holds inf, which is no JSON number; write null, or text"),
    ],
    ids=["a key twice", "a time zone", "a year", "infinity"],
)
def test_a_value_that_no_record_can_keep_is_told_with_its_column(
    tmp_path: Path, values: Any, said: str
) -> None:
    pq.write_table(pa.table({"prompt": ["a"], "x": values}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=said):
        read_rows(tmp_path / "a.parquet")


def test_what_lies_too_deep_to_be_written_again_is_told(tmp_path: Path) -> None:
    def row(depth: int) -> str:
        return '{"prompt": "a", "x": ' + "[" * depth + "]" * depth + "}\n"

    path = tmp_path / "a.jsonl"
    path.write_text(row(100) + '{"prompt": "' + "[{" * 500 + '"}\n')
    assert len(read_rows(path)) == 2
    for depth in (101, 900, 200_000):
        path.write_text(row(3) + row(depth))
        with pytest.raises(DataError, match=r"a.jsonl line 2: nested too deeply, more than 100 lists"):
            read_rows(path)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(DataError, match="here is nested too deeply"):
        plain(endless, "here")
