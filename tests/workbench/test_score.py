from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.errors import ConfigError, DataError, RewardError
from groupwise.workbench.score import pairs, score_to_file


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    given = [
        {"prompt": "2 + 2", "completion": "it is 4", "answer": "4"},
        {"prompt": "2 + 3", "completion": "6", "answer": "5"},
        {"prompt": "who?", "completion": "7", "answer": "nobody"},
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in given))
    return file


def scored(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_one_line_per_row_in_order_with_a_summary(rows: Path) -> None:
    out = rows.with_name("out.jsonl")
    # 1, 0 and none: the mean is over the two that there are.
    assert score_to_file("numeric", rows, out) == [
        "3 rows: mean reward 0.5, lowest 0, highest 1; 1 without a reward",
        f"wrote {out}",
    ]
    assert [line["reward"] for line in scored(out)] == [1.0, 0.0, None]
    assert scored(out)[2] == {"reward": None, "parts": {"numeric": None}, "failure": "no reward applies"}
    score_to_file("numeric", rows, out, settings=["tolerance=1"])
    assert [line["reward"] for line in scored(out)] == [1.0, 1.0, None]


def test_columns_go_by_the_arguments_name(rows: Path) -> None:
    (rows.with_name("own.py")).write_text(
        "def longer(completions, than, *, by: int = 0):\n"
        "    return [float(len(c) > len(t) + by) for c, t in zip(completions, than)]\n"
    )
    out = rows.with_name("out.jsonl")
    score_to_file("own.py:longer", rows, out, columns=["than=answer"])
    assert [line["reward"] for line in scored(out)] == [1.0, 0.0, 0.0]  # 7 > 1, 1 > 1, 1 > 6
    score_to_file("own.py:longer", rows, out, columns=["than=answer"], settings=["by=6"])
    assert [line["reward"] for line in scored(out)] == [0.0, 0.0, 0.0]  # 7 > 7


@pytest.mark.parametrize(
    ("reward", "given", "error", "why"),
    [
        ("numeric", {"columns": ["answer=anser"]}, DataError, "'anser'.*--column answer=answer names"),
        ("format", {}, ConfigError, "^format: give pattern or tags"),
        ("numerc", {}, ConfigError, "'numerc': did you mean 'numeric'"),
        ("numeric", {"settings": ["tolerence=1"]}, ConfigError, "--set: .*'tolerance'"),
        (
            "numeric",
            {"settings": ["tolerance"]},
            ConfigError,
            "--set 'tolerance' is not of the form NAME=VALUE",
        ),
        ("own.py:wrong", {}, RewardError, "failed on every rollout of a batch of 3"),
    ],
)
def test_a_failure_names_the_option_and_leaves_the_output(
    rows: Path, reward: str, given: dict[str, list[str]], error: type[Exception], why: str
) -> None:
    rows.with_name("own.py").write_text("def wrong(completions):\n    raise ValueError('no')\n")
    out = rows.with_name("out.jsonl")
    out.write_text("before")
    with pytest.raises(error, match=why):
        score_to_file(reward, rows, out, **given)
    assert out.read_text() == "before"


def test_pairs_are_split_at_the_first_equals_sign() -> None:
    assert pairs(["a=1", "b=c=d", "e="], "--set") == {"a": "1", "b": "c=d", "e": ""}
    for words in (["=1"], ["a"], [""]):
        with pytest.raises(ConfigError, match="is not of the form NAME=VALUE"):
            pairs(words, "--set")
    with pytest.raises(ConfigError, match="--set: 'a' is given twice"):
        pairs(["a=1", "a=2"], "--set")
