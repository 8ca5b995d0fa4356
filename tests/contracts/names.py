"""Public names that nobody uses."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.contracts.registries import REGISTRIES

EXCEPTIONS: dict[str, str] = {
    "rewards/sandbox/pool.py:close_pools": "called when the interpreter ends",
    "rollouts/vllm/inside/groupwise_vllm.py:init_transfer_engine": "called by vLLM",
    "workbench/starter/reward.py:brief": "a reward to start from",
}
"""`file:name` that no line of the package names, with the reason."""


def unused(source: Path) -> list[str]:
    """Every public function, class, method or constant that the package defines and never names again, a test's use
    not being one. Commands and what a registry finds by its file are called by name from outside."""
    defined: dict[str, list[str]] = {}
    words: Counter[str] = Counter()
    for path in sorted(source.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        words.update(re.findall(r"\w+", text))
        place = path.relative_to(source).as_posix()
        called_from_outside = (
            place.startswith("cli/") or path.parent.relative_to(source).as_posix() in REGISTRIES
        )
        for name in () if called_from_outside else _public(ast.parse(text).body):
            defined.setdefault(name, []).append(f"{place}:{name}")
    return [
        place
        for name, places in sorted(defined.items())
        if words[name] <= len(places)
        for place in places
        if place not in EXCEPTIONS
    ]


def stale(source: Path) -> list[str]:
    """Exceptions for names that are gone or used."""
    kept = dict(EXCEPTIONS)
    EXCEPTIONS.clear()
    try:
        return sorted(set(kept) - set(unused(source)))
    finally:
        EXCEPTIONS.update(kept)


def _public(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        else:
            continue
        yield from (name for name in names if not name.startswith("_"))
        if isinstance(node, ast.ClassDef):
            yield from (
                part.name
                for part in node.body
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and not part.name.startswith("_")
            )
