"""Every command, program and configuration of the pages is run, or says why not."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT, Block, blocks, pages, run_block

PAGES = {str(page.relative_to(ROOT)): page for page in pages()}


def _to_run(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.to_run]


def _is_long(page: Path) -> bool:
    return any("long" in block.marks for block in _to_run(page))


def _run(page: Path, several: list[Block], workshop: Path, folder: Path, monkeypatch: Any) -> None:
    shutil.copytree(workshop, folder, symlinks=True)
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"__name__": page.stem}
    for block in several:
        run_block(block, folder, names)


@pytest.mark.parametrize("name", PAGES)
def test_every_block_says_what_it_is(name: str) -> None:
    assert [fault for block in blocks(PAGES[name]) if (fault := block.fault)] == []
    indented = re.findall(
        r"^ {4}(?:groupwise|python|make|pip) .*$", PAGES[name].read_text(encoding="utf-8"), re.M
    )
    assert indented == [], "commands stand in fenced blocks, so that they are run"


def test_a_file_that_a_reader_is_to_write_is_named_above_it() -> None:
    """The mark itself is seen by no reader."""
    for name, page in PAGES.items():
        for before, file in re.findall(r"([^\n]*)\n+<!-- file: (\S+) -->", page.read_text(encoding="utf-8")):
            assert f"`{file}`" in before or name == "CONTRIBUTING.md", f"{name}: {file}"


@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if _to_run(page)])
def test_what_a_page_says_can_be_done(
    name: str, workshop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = [block for block in _to_run(PAGES[name]) if "long" not in block.marks]
    _run(PAGES[name], several, workshop, tmp_path / "page", monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if _is_long(page)])
def test_what_a_page_says_in_full(
    name: str, workshop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(PAGES[name], _to_run(PAGES[name]), workshop, tmp_path / "page", monkeypatch)


def test_a_block_that_fails_is_noticed(workshop: Path, tmp_path: Path) -> None:
    wrong = {
        "bash": "groupwise explain no_such_preset\n",
        "python": "assert False\n",
        "yaml": "rollout: {group_sise: 4}\n",
    }
    for language, text in wrong.items():
        block = Block(place="x:1", language=language, text=text, marks={})
        with pytest.raises(Exception, match=r"x:1|unknown key|^$|assert"):
            run_block(block, tmp_path, {})
    unknown = Block(place="x:1", language="bash", text="rm x\n", marks={})
    with pytest.raises(AssertionError, match="rm is not run by this test"):
        run_block(unknown, tmp_path, {})


def test_marks_and_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- not run: needs a GPU -->\n```bash\nmake x\n```\n\n<!-- file: a.py -->\n```python\nx = 1\n```\n\n"
        "```\ngroupwise smoke\n```\n```text\ngroupwise smoke\n```\n<!-- not run -->\n```bash\nmake\n```\n"
    )
    monkeypatch.setattr("tests.docs.blocks.ROOT", tmp_path)
    first, second, third, fourth, fifth = blocks(page)
    assert (first.marks, first.fault, first.place) == ({"not run": "needs a GPU"}, None, "page.md:2")
    assert (second.marks, second.text) == ({"file": "a.py"}, "x = 1\n")
    assert "its language is ''" in str(third.fault)
    assert "holds a command and says text" in str(fourth.fault)
    assert "does not say why" in str(fifth.fault)
