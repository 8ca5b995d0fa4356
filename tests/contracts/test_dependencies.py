"""Direct dependencies: what is declared is used, the other way round, and has its reason and its size in the docs."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from tests.contracts.layers import imports
from tests.contracts.sources import parsed

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DIRECT = {Requirement(text).name for text in PROJECT["dependencies"]}
IMPORTED_AS = {"pyyaml": "yaml", "huggingface-hub": "huggingface_hub", "math-verify": "math_verify"}
ELSEWHERE = {
    "vllm": "rollouts/vllm/inside runs in the environment of the server",
    "groupwise_wire": "a file of that folder, imported by the one beside it",
}


def top_level_imports() -> set[str]:
    found: set[str] = set()
    for path in sorted((ROOT / "src").rglob("*.py")):
        if "starter" not in path.parts:
            tree = parsed(path.read_text(encoding="utf-8"))
            found |= {each.module.partition(".")[0] for each in imports(tree, "groupwise")}
    return found - set(sys.stdlib_module_names) - {"groupwise", "__future__"}


def test_what_is_declared_is_used_and_the_other_way_round() -> None:
    used = top_level_imports()
    modules = {IMPORTED_AS.get(name, name.replace("-", "_")) for name in DIRECT}
    assert modules - used == set(), "declared and not imported"
    extras = {Requirement(text).name for texts in PROJECT["optional-dependencies"].values() for text in texts}
    optional = {name.replace("-", "_").lower() for name in extras}
    assert {m for m in used - modules if m.lower() not in optional} == set(ELSEWHERE)


def page_of_reasons() -> str:
    return (ROOT / "docs" / "decisions" / "0010-direct-dependencies.md").read_text(encoding="utf-8")


def test_each_has_its_reason() -> None:
    page = page_of_reasons()
    listed = re.findall(r"^\| ([a-z-]+) \|", page, flags=re.M)[1:]
    assert sorted(listed) == sorted(DIRECT)


def test_the_sizes_are_of_these() -> None:
    page = (ROOT / "docs" / "results" / "sizes.md").read_text(encoding="utf-8")
    assert f"groupwise has {len(DIRECT)} direct dependencies" in page, "make sizes"
    assert set(re.findall(r"^\| ([a-z-]+) \| [0-9]", page, flags=re.M)) == DIRECT
    [(packages, size)] = re.findall(r"(\d+) packages are installed, of ([\d,]+) MB together", page)
    reasons = " ".join(page_of_reasons().split())
    assert f"{len(DIRECT)} direct dependencies; with what these need, {packages} packages" in reasons
    assert f"of {size} MB together" in reasons


def test_every_package_of_the_extras_is_pinned() -> None:
    pinned = {
        re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower()
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    }
    for name in DIRECT | {
        Requirement(text).name for text in PROJECT["optional-dependencies"]["dev"] if "groupwise" not in text
    }:
        assert re.sub(r"[-_.]+", "-", name).lower() in pinned, name
