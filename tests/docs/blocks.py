"""The fenced blocks of README, docs and examples, and how a test runs one.

A comment on the line before a block says what is to be done with it:

    <!-- not run: REASON -->    nothing; a block of bash, python or yaml without this is run
    <!-- long -->               only by `make test-long`
    <!-- file: NAME -->         it is written to NAME in the page's folder instead

Blocks of one page are run in order, in a folder of its own (see `conftest.py`), with the embedded model replaced by the
tiny one and training cut to two steps. Python blocks of a page share their names.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.cli.main import run
from groupwise.config import load

ROOT = Path(__file__).parents[2]
RUN = ("bash", "python", "yaml")
LANGUAGES = (*RUN, "text", "sql")
TINY = (
    "model=tiny",
    "training.steps=2",
    "rollout.prompts_per_step=2",
    "rollout.group_size=2",
    "rollout.max_new_tokens=4",
    "evaluate.prompts=2",
    "evaluate.every_steps=null",
    "prompts.too_long=drop",
    "run.sinks=[]",
)
"""Appended to what is trained."""

_MARK = re.compile(r"<!-- (not run|file|long)(?:: (.+))? -->")
_COMMAND = re.compile(r"^(groupwise|python|pip|make|torchrun|accelerate|git|source|docker|podman) ", re.M)


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block."""

    place: str
    """`page:line` of its fence."""
    language: str
    """As the fence says; empty for none."""
    text: str
    """What is inside."""
    marks: dict[str, str]
    """What the comments before it say."""

    @property
    def to_run(self) -> bool:
        """True for what a test runs or writes."""
        return "file" in self.marks or (self.language in RUN and "not run" not in self.marks)

    @property
    def fault(self) -> str | None:
        """Why a test cannot know what to do with it; None for nothing."""
        if self.language not in LANGUAGES:
            return f"{self.place}: its language is {self.language!r}; there are {', '.join(LANGUAGES)}"
        if self.language not in RUN and _COMMAND.search(self.text):
            return f"{self.place}: it holds a command and says {self.language}; write bash"
        if self.marks.get("not run") == "":
            return f"{self.place}: it is not run and does not say why"
        return None


def pages() -> list[Path]:
    """Every page whose blocks a reader may try."""
    top = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    return [*top, *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/**/README.md"))]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    marks: dict[str, str] = {}
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), start=1))
    for number, line in lines:
        fence = re.match(r"^(\s*)```(\w*)$", line)
        if fence is None:
            mark = _MARK.fullmatch(line.strip())
            marks = marks | {mark[1]: mark[2] or ""} if mark else {}
            continue
        inside: list[str] = []
        for _, text in lines:
            if text.strip() == "```":
                break
            inside.append(text.removeprefix(fence[1]))
        place = f"{page.relative_to(ROOT)}:{number}"
        found.append(Block(place=place, language=fence[2], text="\n".join(inside) + "\n", marks=marks))
        marks = {}
    return found


def run_block(block: Block, folder: Path, names: dict[str, Any]) -> None:
    """Do what a block says, in the working folder `folder`.

    Raises:
        AssertionError: it did not end well, or cannot be run.
    """
    text = block.text.replace("smollm2-135m", "tiny")
    if "file" in block.marks:
        (folder / block.marks["file"]).write_text(text, encoding="utf-8")
        if block.language == "yaml":
            load(folder / block.marks["file"])
    elif block.language == "python":
        exec(compile(text, block.place, "exec"), names)
    elif block.language == "yaml":  # a part of a configuration, or entries of `rewards`
        whole = folder / "block.yaml"
        whole.write_text(f"rewards:\n{text}" if text.startswith("- ") else text, encoding="utf-8")
        load(whole)
    else:
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                assert _run_line(words, folder) == 0, f"{block.place}: {line}"


def _run_line(words: list[str], folder: Path) -> int:
    program, *rest = words
    if program == "python":
        return subprocess.run([sys.executable, *rest], cwd=folder, check=False).returncode
    assert program == "groupwise", (
        f"{program} is not run by this test; mark the block as not run, with the reason"
    )
    more = {"train": () if "--resume" in rest else TINY, "plan": ("rollout.max_new_tokens=200",)}
    return run([*rest, *more.get(rest[0], ())])
