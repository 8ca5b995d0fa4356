"""What must be explained."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from groupwise.records.metrics_file import METRICS
from tests.contracts.sources import parsed

FILES = (
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "constraints.txt",
    "Makefile",
    "docs/records.md",
)
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b|NotImplementedError")


def docstring_faults(source: Path) -> list[str]:
    """Every public module, class, function and method without a docstring, as `file:line: sentence`."""
    faults: list[str] = []
    for path in sorted(source.rglob("*.py")):
        place = path.relative_to(source)
        tree = parsed(path.read_text(encoding="utf-8"))
        if not ast.get_docstring(tree):
            faults.append(f"{place}:1: the module says nothing of itself")
        faults += [f"{place}:{node.lineno}: {node.name} has no docstring" for node in _public(tree.body)]
    return faults


def _public(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in body:
        if isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        ) and not node.name.startswith("_"):
            overloaded = any(ast.unparse(d).endswith("overload") for d in node.decorator_list)
            if not ast.get_docstring(node) and not overloaded:
                yield node
            if isinstance(node, ast.ClassDef):
                yield from _public(node.body)


def unfinished(source: Path) -> list[str]:
    """Every line that says of itself that it is not finished, as `file:line: line`."""
    return [
        f"{path.relative_to(source)}:{number}: {line.strip()}"
        for path in sorted(source.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if UNFINISHED.search(line)
    ]


def missing_files(root: Path) -> list[str]:
    """What a stranger expects at the top of a repository, and is not there or empty."""
    return [name for name in FILES if not (root / name).is_file() or not (root / name).read_text().strip()]


METRIC_NAME = re.compile(r"^(?:[a-z]+/)+[a-z0-9_@{}./]+$")
METRIC_ROOTS = frozenset(
    {
        "reward",
        "advantage",
        "kl",
        "policy",
        "ratio",
        "clip",
        "length",
        "sampler",
        "dpo",
        "critic",
        "curriculum",
        "filter",
        "teaching",
        "diversity",
        "grad",
        "training",
        "tokens",
        "memory",
        "time",
        "eval",
    }
)


def metric_names(source: Path) -> dict[str, str]:
    """Every metric that the source spells, `file:line` by name; `{...}` stands for what is filled in."""
    found: dict[str, str] = {}
    for path in sorted(source.rglob("*.py")):
        place = path.relative_to(source)
        nodes = list(ast.walk(parsed(path.read_text(encoding="utf-8"))))
        pieces = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in nodes:
            text = None
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in pieces:
                text = node.value
            elif isinstance(node, ast.JoinedStr):
                text = "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "{label}" for part in node.values
                )
            if text and METRIC_NAME.match(text) and text.split("/")[0] in METRIC_ROOTS:
                found.setdefault(text, f"{place}:{node.lineno}")
    return found


def unread_settings(source: Path, keys: list[str]) -> list[str]:
    """Settings whose name is read as an attribute nowhere outside the sections that declare them."""
    read: set[str] = set()
    for path in sorted(source.rglob("*.py")):
        nodes = ast.walk(parsed(path.read_text(encoding="utf-8")))
        read |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return [key for key in keys if key.rsplit(".", 1)[-1] not in read]


def undocumented(names: Iterable[str]) -> list[str]:
    """Those of `names` that METRICS does not explain, sorted."""
    patterns = [re.compile(re.sub(r"\\{\w+\\}", ".+", re.escape(name))) for name in METRICS]
    return sorted({name for name in names if not any(pattern.fullmatch(name) for pattern in patterns)})
