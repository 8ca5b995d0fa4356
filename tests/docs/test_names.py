"""Pages and examples import public names only, and the page of these names is complete."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import groupwise
from tests.docs.blocks import ROOT, blocks, pages

EXAMPLES = sorted(ROOT.glob("examples/**/*.py"))


def not_public(tree: ast.AST) -> Iterator[str]:
    """What a program takes from groupwise beside its public names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "groupwise":
            if node.module != "groupwise":
                yield str(node.module)
            yield from (
                a.name for a in node.names if node.module == "groupwise" and a.name not in groupwise.__all__
            )
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("groupwise."))
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "groupwise"
        ):
            yield from () if node.attr in groupwise.__all__ else (f"groupwise.{node.attr}",)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_import_public_names_only(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python":
            assert list(not_public(ast.parse(block.text))) == [], block.place


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: str(file.relative_to(ROOT)))
def test_examples_import_public_names_only(file: Path) -> None:
    assert list(not_public(ast.parse(file.read_text(encoding="utf-8")))) == []


def test_what_is_not_public_is_found() -> None:
    program = (
        "import groupwise.cli\nfrom groupwise.records import Finding\nfrom groupwise import train, secrets\n"
    )
    program += "groupwise.registry.find\n"
    assert sorted(not_public(ast.parse(program))) == [
        "groupwise.cli",
        "groupwise.records",
        "groupwise.registry",
        "secrets",
    ]


def test_the_page_lists_every_public_name() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = {name for cell in cells for name in re.findall(r"`(\w+)", cell)}
    assert listed == set(groupwise.__all__)


def test_every_public_name_is_there_and_explained() -> None:
    for name in groupwise.__all__:
        assert getattr(groupwise, name).__doc__, name
    with pytest.raises(AttributeError, match=r"no public name 'trian'; there are .*train"):
        _ = groupwise.trian
    assert dir(groupwise) == sorted(groupwise.__all__)


def test_nothing_heavy_is_loaded_by_the_import() -> None:
    program = "import sys, groupwise; groupwise.Finding; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    for page in folder.glob("0*.md"):
        number, _, title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").partition(". ")
        assert f"- [{title}]({page.name})" in index
        assert int(number) == int(page.name[:4])
