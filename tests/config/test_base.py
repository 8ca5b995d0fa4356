"""Numbers, words and nothing: what a field takes for what (case l03)."""

import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from groupwise.config.base import Bool, Float, FromBase, Int, Text, said


def taken(kind: Any, value: object) -> object:
    return TypeAdapter(kind).validate_python(value)


def refused(kind: Any, value: object) -> str:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(value)
    return str(caught.value.errors()[0]["msg"])


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("1e-6", 1e-6),
        ("1.0e-6", 1e-6),
        (" 3 ", 3.0),
        (3, 3.0),
        ("1_000", 1000.0),
        ("-.5", -0.5),
        (True + 1, 2.0),
    ],
)
def test_text_that_spells_a_number_is_one(value: object, number: float) -> None:
    assert taken(Float, value) == number
    assert isinstance(taken(Float, value), float)


@pytest.mark.parametrize(
    "value",
    ["abc", "", "1:30", "0x10", "1e", "1,5", True, False, None, [1], {"a": 1}, "true", "1e-6 "[:0] + "one"],
)
def test_what_is_no_number_is_refused(value: object) -> None:
    assert "not a number" in refused(Float, value) or "not numbers" in refused(Float, value)
    assert "not a number" in refused(Int, value) or "not numbers" in refused(Int, value)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, "inf", "nan", "1e400", 10**400])
def test_numbers_are_finite(value: object) -> None:
    # Case l07: an infinite limit waits for ever.
    assert "not finite" in refused(Float, value)


@pytest.mark.parametrize(
    ("value", "number"), [(4, 4), (4.0, 4), ("4", 4), ("4.0", 4), ("1e3", 1000), (1e3, 1000)]
)
def test_whole_numbers_may_be_written_as_decimals(value: object, number: int) -> None:
    assert taken(Int, value) == number
    assert isinstance(taken(Int, value), int)


@pytest.mark.parametrize("value", [4.5, "4.5", "1e-3", math.inf, math.nan])
def test_parts_of_a_whole_are_refused(value: object) -> None:
    assert "not a whole number" in refused(Int, value)


@pytest.mark.parametrize("value", ["010", "-007", "+00"])
def test_a_leading_zero_is_refused_since_readers_differ(value: str) -> None:
    for kind in (Int, Float):
        assert "octal to some readers" in refused(kind, value)
    assert taken(Int, "0") == 0


@pytest.mark.parametrize(
    ("value", "answer"), [("yes", True), ("no", False), ("on", True), ("OFF", False), (True, True)]
)
def test_words_for_yes_and_no(value: object, answer: bool) -> None:
    assert taken(Bool, value) is answer


@pytest.mark.parametrize("value", ["maybe", "y", "1", 1, 0, None, []])
def test_other_words_are_neither(value: object) -> None:
    assert "neither true nor false" in refused(Bool, value)


@pytest.mark.parametrize("value", ["", "a", "true", "1e-6", "null"])
def test_text_is_text(value: str) -> None:
    assert taken(Text, value) == value


@pytest.mark.parametrize("value", [5, 1.5, True, None, ["a"], {"a": 1}, ("a",)])
def test_what_is_not_text_is_refused_in_words(value: object) -> None:
    assert "is not text" in refused(Text, value)


@pytest.mark.parametrize("kind", [Text, Int, Float])
def test_none_as_a_word_asks_for_null(kind: Any) -> None:
    assert "write null for no value" in refused(kind, "None")
    assert taken(kind | None, None) is None


def test_values_are_said_as_they_are_written() -> None:
    assert [said(v) for v in (None, True, False, 0, 1, 0.5, "a")] == [
        "null",
        "true",
        "false",
        "0",
        "1",
        "0.5",
        "'a'",
    ]


def test_a_file_of_a_setting_is_relative_to_the_configuration_where_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "models" / "rm").mkdir(parents=True)
    mark = FromBase()
    assert mark.resolved("models/rm", tmp_path) == str(tmp_path / "models" / "rm")
    assert mark.resolved("cache.sqlite", tmp_path) == str(tmp_path / "cache.sqlite")  # to be made there
    assert mark.resolved("org/name", tmp_path) == "org/name"  # a hub id
    assert mark.resolved("none/cache.sqlite", tmp_path) == "none/cache.sqlite"
    assert mark.resolved(str(tmp_path), Path("/elsewhere")) == str(tmp_path)
    assert mark.resolved("x" * 5000, tmp_path) == "x" * 5000
