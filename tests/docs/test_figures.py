"""Figures that stand in two places are the same in both."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import ROOT

RESULTS = (ROOT / "docs" / "results" / "presets.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| \[(\w+)\]\([^)]*\) \| ([-0-9.]+ \| [-0-9.]+) \|", RESULTS, flags=re.M))


@pytest.mark.parametrize("preset", ROWS)
def test_a_presets_page_says_what_was_measured(preset: str) -> None:
    page = (ROOT / "docs" / "objectives" / f"{preset}.md").read_text(encoding="utf-8")
    said = re.search(r"reward of the smoke task goes from\s+([-0-9.]+) to\s+([-0-9.]+) in 20 steps", page)
    assert said is not None
    assert " | ".join(said.groups()) == ROWS[preset]
    assert "`python benchmarks/presets.py`" in page


def test_every_results_page_names_its_command() -> None:
    for page in sorted((ROOT / "docs" / "results").glob("*.md")):
        assert re.search(r"`(?:python (?:-m )?benchmarks|make )[^`]*`", page.read_text(encoding="utf-8")), (
            page
        )


def test_the_readme_fits_on_two_screens() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 110
