from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.config.prompts import PromptsConfig
from groupwise.errors import ConfigError, DataError
from groupwise.prompts import check_rows, read_rows, rows_from

GSM8K = (
    '{"question": "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. '
    'How many clips did Natalia sell altogether in April and May?", "answer": "Natalia sold 48/2 = <<48/2=24>>24 '
    'clips in May.\\nNatalia sold 48+24 = <<48+24=72>>72 clips altogether in April and May.\\n#### 72"}\n'
    '{"question": "A robe takes 2 bolts of blue fiber and half that much white fiber.  How many bolts in total does '
    'it take?", "answer": "It takes 2/2=<<2/2=1>>1 bolt of white fiber\\nSo the total amount of fabric is '
    '2+1=<<2+1=3>>3 bolts of fabric\\n#### 3"}\n'
)


def settings(**values: Any) -> PromptsConfig:
    return PromptsConfig.model_validate(values)


def write(folder: Path, content: bytes | str, name: str = "train.jsonl") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_gsm8k_as_published_loads_with_a_mapping(tmp_path: Path) -> None:
    rows = read_rows(write(tmp_path, GSM8K))
    check_rows(rows, settings(columns={"prompt": "question"}))
    assert [row.id for row in rows] == ["train.jsonl:0", "train.jsonl:1"]
    assert (
        rows[1].columns["question"].startswith("A robe takes 2 bolts of blue fiber and half that much white")
    )
    assert rows[1].columns["answer"].endswith("\n#### 3")


def test_records_end_at_line_feeds_only_and_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    # U+2028, U+0085 and a lone carriage return are line ends to str.splitlines but not to JSONL.
    lines = [
        '{"prompt": "one\u2028line"}',
        '{"prompt": "next\u0085line"}',
        '{"prompt": "c"}',
        '{"prompt":\r"d"}',
    ]
    rows = read_rows(write(tmp_path, b"\xef\xbb\xbf" + "\r\n".join(lines).encode()))
    assert [row.columns["prompt"] for row in rows] == ["one\u2028line", "next\u0085line", "c", "d"]


def test_blank_lines_are_no_rows_but_count_as_lines(tmp_path: Path) -> None:
    rows = read_rows(write(tmp_path, '\n{"prompt": "a"}\n  \n\r\n{"prompt": "b"}\n\n'))
    assert [(row.index, row.line, row.id, row.place) for row in rows] == [
        (0, 2, "train.jsonl:0", "train.jsonl line 2"),
        (1, 5, "train.jsonl:1", "train.jsonl line 5"),
    ]


def test_a_header_and_a_field_of_several_lines_are_no_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('\nprompt,gold\n"one\ntwo",1\n\n,\nthree,2\n\n')
    rows = read_rows(path)
    # A row of empty fields is blank, too.
    assert [(row.line, row.blank_lines) for row in rows] == [(3, 1), (7, 3)]
    path.write_text("prompt,gold\none,1\ntwo,2\n")
    assert [(row.line, row.blank_lines) for row in read_rows(path)] == [(2, 0), (3, 0)]


def test_values_keep_their_types(tmp_path: Path) -> None:
    (row,) = read_rows(
        write(tmp_path, '{"prompt": "a", "gold": 1, "share": 1.0, "none": null, "list": [1, {"a": 2}]}')
    )
    assert row.columns == {"prompt": "a", "gold": 1, "share": 1.0, "none": None, "list": [1, {"a": 2}]}
    assert type(row.columns["gold"]) is int
    assert type(row.columns["share"]) is float


GOOD = '{"prompt": "a"}\n' * 6


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{'prompt': 'a'}", "not JSON: Expecting property name enclosed in double quotes at character 2"),
        (b'{"prompt": "a\x0cb"}', "not JSON: Invalid control character at character 14"),
        (b'{"prompt": "a"', "not JSON: Expecting ',' delimiter"),
        (b'{"prompt": "a"} {"prompt": "b"}', "not JSON: Extra data"),
        (b'["a"]', "a list, not an object; each line is like"),
        (b'"a"', "text, not an object"),
        (b"3", "a number, not an object"),
        (b"null", "null, not an object"),
        (b'{"prompt": "a", "gold": 1, "prompt": "b"}', "the key 'prompt' is given twice"),
        (b'{"prompt": "a", "more": {"x": 1, "x": 1}}', "the key 'x' is given twice"),
        (b'{"prompt": "a", "gold": NaN}', "NaN is no JSON number; write null"),
        (b'{"prompt": "caf\xe9"}', "not UTF-8: byte 16 is 0xe9; save the file as UTF-8"),
        (b'{"prompt": "a", "gold": "\\ud83d"}', "half of a surrogate pair"),
        (b'{"prompt": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"gold": ' + b"9" * 5000 + b"}", "a whole number of more than 4300 digits; put it in quotes"),
        (b'{"prompt": "a", "gold": 1e999}', "the number 1e999 is too large for a float"),
        (b'{"prompt": "a", "gold": [-1e999]}', "the number -1e999 is too large for a float"),
    ],
)
def test_a_bad_line_is_named_with_file_and_line(tmp_path: Path, line: bytes, said: str) -> None:
    path = write(tmp_path, GOOD.encode() + line + b"\n" + GOOD.encode())
    with pytest.raises(DataError) as caught:
        read_rows(path)
    assert str(caught.value).startswith("train.jsonl line 7: ")
    assert said in str(caught.value)


def test_a_surrogate_pair_written_in_full_is_one_character(tmp_path: Path) -> None:
    (row,) = read_rows(write(tmp_path, '{"prompt": "\\ud83d\\ude00"}'))
    assert row.columns["prompt"] == "\U0001f600"


def test_a_json_list_over_several_lines_is_recognised(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"train.jsonl line 1: not JSON.*one JSON list: write one object per line"
    ):
        read_rows(write(tmp_path, json.dumps([{"prompt": "a"}], indent=1)))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\n \n\r\n", "blank lines only"),
        ("{}".encode("utf-16"), "UTF-16; save it as UTF-8"),
    ],
)
def test_a_file_without_rows(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_rows(write(tmp_path, content))


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "Train.jsonl")
    with pytest.raises(DataError, match=r"there is no file .*trian\.jsonl; did you mean Train\.jsonl\?"):
        read_rows(tmp_path / "trian.jsonl")
    with pytest.raises(DataError, match=r"there is no file .*; .* has Train\.jsonl$"):
        read_rows(tmp_path / "zzz")
    with pytest.raises(DataError, match=r"there is no folder .*nowhere either"):
        read_rows(tmp_path / "nowhere" / "train.jsonl")


def test_a_folder_and_another_format_say_what_to_name(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    with pytest.raises(DataError, match=r"is a folder; name a file of rows in it \(it holds train\.jsonl\)"):
        read_rows(tmp_path)
    with pytest.raises(DataError, match=r"train\.xlsx: rows are read from files that end in \.jsonl, \.json"):
        read_rows(write(tmp_path, "prompt\na\n", "train.xlsx"))


def test_python_rows_are_copied_and_numbered() -> None:
    values = [{"prompt": "a"}, {"prompt": "b"}]
    rows = rows_from(values, source="mine")
    values[0]["prompt"] = "changed"
    assert [(row.id, row.place, row.columns["prompt"]) for row in rows] == [
        ("mine:0", "mine:0", "a"),
        ("mine:1", "mine:1", "b"),
    ]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "mine: there are no rows"),
        ({"prompt": "a"}, "mine: dict given, but rows are a list of mappings"),
        ("a", "mine: str given"),
        ([{"prompt": "a"}, "b"], "mine:1: a str, but a row is a mapping"),
        ([{1: "a"}], "mine:0: the column name 1 is not text"),
        ([{None: "a"}], "mine:0: the column name None is not text"),
    ],
)
def test_python_rows_that_are_none(values: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        rows_from(values, source="mine")


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "the prompt (column 'prompt') is null; it is text or a list of messages"),
        (7, "is of type int"),
        ("", "the prompt (column 'prompt') is empty"),
        (" \n\t", "is empty"),
        ('[{"role": "user", "content": "hi"}]', "is a list of messages written as text; write a list"),
        (
            "[{'content': 'hi', 'role': 'user'},\n {'role': 'user', 'content': 'x'}]\n",
            "messages written as text",
        ),
        ("\ud800", "half of a surrogate pair"),
        (user("a"), "is a single message; put it in a list"),
        ({"text": "a"}, "is of type dict"),
        ([], "the list is empty; it needs at least one user turn"),
        (["a"], "message 1 is a str, not an object with role and content"),
        ([{"content": "a"}], "message 1 has no role; it has content"),
        ([user("a"), {"role": "user"}], "message 2 has no content; it has role"),
        ([{"from": "human", "value": "a"}], "message 1 has no role; it has from, value"),
        ([{"role": "human", "content": "a"}], "the role 'human'; chat templates call it 'user'"),
        ([{"role": "User", "content": "a"}], "the role 'User'; chat templates call it 'user'"),
        (
            [{"role": "SYSTEM", "content": "a"}, {"role": "user", "content": "a"}],
            "message 1 has the role 'SYSTEM'; chat templates call it 'system'",
        ),
        ([{"role": "GPT", "content": "a"}], "the role 'GPT'; chat templates call it 'assistant'"),
        ([{"role": "user<|im_end|>", "content": "a"}], "a role is a word"),
        ([{"role": None, "content": "a"}], "the role None; a role is a word"),
        ([user(None)], "the content of message 1 is null; only text is read"),
        ([user([{"type": "text", "text": "a"}])], "the content of message 1 is a list; only text is read"),
        ([user(" ")], "the last user turn is empty"),
        ([user("\udfff")], "the content of message 1 holds half of a surrogate pair"),
        ([user("a"), {"role": "assistant", "content": "b"}], "the last turn is assistant's"),
        (
            [{"role": "system", "content": "b"}],
            "the last turn is system's, but a prompt ends with the user's",
        ),
    ],
)
def test_a_malformed_prompt_is_named(value: Any, said: str) -> None:
    rows = rows_from([{"prompt": "fine"}, {"prompt": [user("fine")]}, {"prompt": value}], source="mine")
    with pytest.raises(DataError) as caught:
        check_rows(rows, settings())
    assert str(caught.value).startswith("mine:2: ")
    assert said in str(caught.value)


def test_a_missing_column_lists_those_present_and_suggests_the_mapping(tmp_path: Path) -> None:
    rows = read_rows(write(tmp_path, GSM8K))
    with pytest.raises(DataError) as caught:
        check_rows(rows, settings())
    assert str(caught.value) == (
        "train.jsonl line 1: no column 'prompt'; the row has question, answer; to use another, set "
        "`prompts.columns: {prompt: question}`, or prompts.columns.prompt=question behind a command (1 more of 2 rows "
        "are wrong as well)"
    )


def test_every_row_of_every_file_is_checked(tmp_path: Path) -> None:
    rows = read_rows(write(tmp_path, GOOD)) + read_rows(write(tmp_path, '{"promt": "a"}', "second.jsonl"))
    with pytest.raises(DataError, match=r"second\.jsonl line 1: no column 'prompt'; .*\{prompt: promt\}"):
        check_rows(rows, settings())


def test_two_files_of_one_name_need_names_of_their_own(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    with pytest.raises(DataError, match=r"two rows have the id train\.jsonl:0"):
        check_rows(read_rows(path) + read_rows(path), settings())
    check_rows(read_rows(path) + read_rows(path, source="again/train.jsonl"), settings())


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"sytem": "b"}, r"no column 'system' \(prompts.columns.system\): did you mean 'sytem'\?"),
        ({}, "the row has prompt; rows without one hold null there"),
        ({"system": 3}, "the system prompt .* is of type int; it is text or null"),
        ({"system": "  "}, "the system prompt .* is empty; write null for none"),
    ],
)
def test_a_malformed_system_column_is_named(row: dict[str, Any], said: str) -> None:
    rows = rows_from([{"prompt": [user("a")], **row}], source="mine")
    with pytest.raises(DataError, match=said):
        check_rows(rows, settings(columns={"system": "system"}))


def test_chat_settings_with_text_prompts_say_what_to_do() -> None:
    text = rows_from([{"prompt": [user("a")], "s": None}, {"prompt": "a", "s": "b"}], source="mine")
    with pytest.raises(ConfigError, match=r"mine:1: .*prompts\.system_prompt .*set prompts\.chat to true"):
        check_rows(text, settings(system_prompt="Be brief."))
    with pytest.raises(ConfigError, match=r"mine:1: .*prompts\.columns\.system .*set prompts\.chat to true"):
        check_rows(text, settings(columns={"system": "s"}))
    with pytest.raises(ConfigError, match=r"chat_template_kwargs is set, but every prompt is text"):
        check_rows(text[1:], settings(chat_template_kwargs={"enable_thinking": False}))
    with pytest.raises(ConfigError, match="prompt and system both name the column 'prompt'"):
        check_rows(text, settings(columns={"system": "prompt"}))
    check_rows(text, settings(system_prompt="Be brief.", chat=True))
    check_rows(text, settings(chat_template_kwargs={"enable_thinking": False}))


def test_reading_and_checking_load_neither_torch_nor_transformers() -> None:
    code = (
        "import sys, groupwise.prompts; from groupwise.config.prompts import PromptsConfig as C; "
        "groupwise.prompts.check_rows(groupwise.prompts.rows_from([{'prompt': 'a'}], source='x'), C()); "
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_an_object_over_several_lines_is_recognised(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps({"prompt": "a", "gold": "b"}, indent=2))
    with pytest.raises(
        DataError, match=r"line 1: not JSON: .*; does the object go on in the next line\? write"
    ):
        read_rows(path)


def test_pipes_devices_and_broken_links_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "device.jsonl").symlink_to("/dev/zero")
    for name in ("pipe", "device"):
        with pytest.raises(DataError, match=f"{name}.jsonl is a pipe or a device, not a file"):
            read_rows(tmp_path / f"{name}.jsonl")
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "away.jsonl")
    with pytest.raises(DataError, match=r"gone\.jsonl is a link to .*away\.jsonl, where there is no file"):
        read_rows(tmp_path / "gone.jsonl")
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    with pytest.raises(DataError, match=r"loop\.jsonl"):
        read_rows(tmp_path / "loop.jsonl")
    whole = write(tmp_path, GOOD, "whole.jsonl")
    (tmp_path / "link.jsonl").symlink_to(whole)
    assert [r.columns for r in read_rows(tmp_path / "link.jsonl")] == [r.columns for r in read_rows(whole)]


@pytest.mark.parametrize("name", ["a" * 300 + ".jsonl", "a\0b.jsonl"])
def test_names_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"(there is no file|cannot be read: ).*") as caught:
        read_rows(tmp_path / name)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("call", ["is_dir", "stat", "iterdir", "read_bytes"])
def test_a_file_that_may_not_be_read_says_how_to_mend_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def denied(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    if call != "iterdir":
        write(tmp_path, GOOD)
    monkeypatch.setattr(Path, call, denied)  # as in a folder of mode 000; root may look anywhere
    with pytest.raises(DataError, match=r"cannot be read: permission denied; allow yourself"):
        read_rows(tmp_path / "train.jsonl")


def test_single_numbers_of_rows_from_python_are_pythons_own_and_nan_is_none() -> None:
    kept = {"prompt": "a", "thing": object(), "by_number": {1: (2, 3)}, "much": float("inf"), "text": "nan"}
    [row] = rows_from(
        [{**kept, "gold": np.int64(3), "none": float("nan"), "missing": np.float32("nan")}], source="train"
    )
    assert row.columns == {**kept, "gold": 3, "none": None, "missing": None}
    assert type(row.columns["gold"]) is int


def test_one_row_of_many_without_the_prompt_is_told_to_be_mended(tmp_path: Path) -> None:
    rows = read_rows(write(tmp_path, '{"prompt": "a"}\n{"promt": "b", "answer": "c"}\n{"prompt": "d"}'))
    said = "line 2: no column 'prompt', which most rows have; this one has promt, answer: mend it, or take it out"
    with pytest.raises(DataError, match=said):
        check_rows(rows, settings())
    others = read_rows(write(tmp_path, '{"prompt": "a"}\n{"question": "b"}\n{"question": "c"}'))
    with pytest.raises(DataError, match=r"prompts\.columns: \{prompt: question\}"):
        check_rows(others, settings())
