from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Lt
from pydantic import Field

from groupwise import registry
from groupwise.config.base import Bool, Float, PositiveInt, Text
from groupwise.config.document import CHOICES, fill, kind_of, reference, sections
from groupwise.config.keys import known_keys

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_holds_what_the_models_say() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert fill(page) == page, "a setting has changed: make docs"


def test_every_setting_stands_under_its_section() -> None:
    titles = {key for key, _ in sections()}
    tables = dict(
        re.findall(r"^## (?:`([^`]+)`|The whole)\n\n(.*?)(?=^## |\Z)", reference(), flags=re.M | re.S)
    )
    assert set(tables) == titles
    for key in known_keys():
        section, _, name = key.rpartition(".")
        section = next(s for s in titles if re.sub(r"\[\]|\.NAME", "", s) == section)
        here = tables[section]
        shared = re.match(r"As \[`([^`]+)`\]", here)
        assert re.search(rf"^\| \[?`{name}`", tables[shared[1]] if shared else here, flags=re.M), key


def test_every_function_of_a_folder_is_there_with_its_settings() -> None:
    for key, package in CHOICES.items():
        text = reference().partition(f"## `{key}`: functions")[2]
        for name in registry.names(package):
            row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
            for setting in registry.settings(registry.find(package, name)):
                assert f"`{setting}: " in row


def test_links_lead_to_titles_of_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    titles = {
        re.sub(r"[^a-z0-9_ -]", "", title.lower()).strip().replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", page, flags=re.M)
    }
    assert set(re.findall(r"\(#([^)]+)\)", page)) <= titles


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (Bool, "true or false"),
        (Text | None, "text or null"),
        (PositiveInt, "whole number ≥ 1"),
        (Annotated[Float, Ge(0), Lt(1)], "number ≥ 0 and < 1"),
        (Annotated[Float, Field(gt=0, le=1)], "number > 0 and ≤ 1"),
        (Literal["a", "b"] | None, "`a`, `b` or null"),
        (tuple[Text, ...], "list of: text"),
        (tuple[PositiveInt, Float], "[whole number ≥ 1, number]"),
        (dict[str, Any], "mapping"),
    ],
)
def test_kinds_in_words(annotation: Any, said: str) -> None:
    assert kind_of(annotation) == said


def test_a_page_without_a_place_is_refused() -> None:
    with pytest.raises(ValueError, match="has 0 places for the settings"):
        fill("# Configuration\n")
