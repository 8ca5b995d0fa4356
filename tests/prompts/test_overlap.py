"""Rows that repeat one another: told, left out or refused."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise.config.prompts import ColumnsConfig, PromptsConfig
from groupwise.errors import DataError
from groupwise.prompts.load import rows_from
from groupwise.prompts.overlap import Overlap, without_repeats


def found(
    train: list[dict[str, Any]], held_out: list[dict[str, Any]] | None = None, **settings: Any
) -> Overlap:
    held = rows_from(held_out, source="held") if held_out else []
    return without_repeats(rows_from(train, source="train"), held, PromptsConfig(**settings))


def test_nothing_is_said_where_nothing_repeats() -> None:
    one = found([{"prompt": "1 + 1"}, {"prompt": "1 - 1"}], [{"prompt": "1 * 1"}])
    assert (len(one.train), one.sentences) == (2, ())


def test_rows_that_repeat_in_every_column_are_told_or_left_out_and_others_stay() -> None:
    # Case e03: one prompt with two answers is two prompts, whatever is chosen.
    rows = [
        {"prompt": "a", "gold": 1},
        {"prompt": "b", "gold": 1},
        {"prompt": "a", "gold": 1},
        {"prompt": "a", "gold": 2},
        {"prompt": "a", "gold": 1},
    ]
    told = found(rows)
    assert len(told.train) == 5
    assert told.sentences == (
        "2 of 5 training rows repeat an earlier one in every column, each kept as a prompt of its own "
        "(prompts.duplicates: keep); the first is train:2.",
        "1 training rows ask what another asks, with other columns such as another answer; each stays a prompt of its "
        "own.",
    )
    dropped = found(rows, duplicates="drop")
    assert [row.id for row in dropped.train] == ["train:0", "train:1", "train:3"]
    assert "left out (prompts.duplicates: drop)" in dropped.sentences[0]


TRAIN = [{"prompt": "What is  2 + 2?"}, {"prompt": "And 3 + 3?"}, {"prompt": "what is 2 + 2"}]


def test_a_held_out_prompt_is_found_whatever_its_case_spaces_and_punctuation() -> None:
    told = found(TRAIN, [{"prompt": "WHAT IS 2 + 2 ?"}, {"prompt": "what is 2 - 2?"}])
    assert len(told.train) == 3
    assert told.sentences == (
        "1 of 2 held-out prompts are trained on as well (such as held:0 is train:0), so held-out results flatter "
        "(prompts.overlap: tell).",
    )
    dropped = found(TRAIN, [{"prompt": "WHAT IS 2 + 2 ?"}], overlap="drop")
    assert [row.id for row in dropped.train] == ["train:1"]
    assert "2 training rows left out" in dropped.sentences[0]
    with pytest.raises(
        DataError, match=r"1 of 1 held-out prompts are trained on as well .*set prompts\.overlap to drop"
    ):
        found(TRAIN, [{"prompt": "and 3 + 3"}], overlap="error")
    with pytest.raises(DataError, match="leaves nothing to train on"):
        found(TRAIN[:1], TRAIN[2:], overlap="drop")


def test_messages_and_history_are_compared_by_their_words_and_a_system_prompt_is_not() -> None:
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi there"}]
    alone = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi there!"}]
    assert found([{"prompt": messages}], [{"prompt": alone}]).sentences
    columns = ColumnsConfig(history="before")
    rows = [{"prompt": "And you?", "before": [["Hi", "Hello"]]}]
    other = [{"prompt": "And you?", "before": [["Hi", "Go away"]]}]
    assert not found(rows, other, columns=columns).sentences
    assert found(rows, [{"prompt": "and you", "before": [["hi", "hello."]]}], columns=columns).sentences


def test_prompts_without_words_are_compared_by_their_characters() -> None:
    assert not found([{"prompt": "??"}], [{"prompt": "!!"}]).sentences
    assert found([{"prompt": "??"}], [{"prompt": "??"}]).sentences
