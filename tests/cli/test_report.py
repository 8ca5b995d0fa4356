"""`groupwise report` on runs that were really made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Said


def test_a_run_and_then_two(project: Path, groupwise: Callable[..., Said]) -> None:
    assert groupwise("train", "config.yaml").code == 0
    said = groupwise("report", "run")
    assert said.code == 0
    assert said.out == "run/report.html: 0.1 MB, 4 groups down to their tokens\n"
    page = (project / "run" / "report.html").read_text()
    assert "minimise" in page, "the formula, as explain prints it"
    assert groupwise("train", "config.yaml", "run.dir=second").code == 0
    said = groupwise("report", "run", "second", "-o", "both.html")
    assert said.out == "both.html: 0.1 MB, 4 and 4 groups down to their tokens\n"
    assert groupwise("train", "config.yaml", "run.overwrite=true").code == 0, (
        "the report is of the run's files"
    )
    assert not (project / "run" / "report.html").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "Missing argument 'RUN...'"),
        (["nowhere"], "there is no run folder nowhere"),
        (["config.yaml"], "there is no run folder config.yaml"),
        (["."], "is not a run folder: it has no manifest.json"),
        (["--step", "3"], "has no option --step"),
    ],
)
def test_wrong_words_are_one_sentence(
    project: Path, groupwise: Callable[..., Said], words: list[str], why: str
) -> None:
    said = groupwise("report", *words)
    assert said.code == 2
    assert why in said.err
    assert said.err.count("\n") == 1
