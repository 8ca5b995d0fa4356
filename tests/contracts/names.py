"""Public names that nobody uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.contracts.registries import REGISTRIES
from tests.contracts.sources import parsed

EXCEPTIONS: dict[str, str] = {
    "rewards/sandbox/pool.py:close_pools": "called when the interpreter ends",
    **{
        f"rollouts/vllm/inside/groupwise_vllm.py:{name}": "called by vLLM"
        for name in (
            "init_transfer_engine",
            "start_weight_update",
            "update_weights",
            "finish_weight_update",
        )
    },
    "rewards/sandbox/inside/stand_in.py:parametrize": "stands in for pytest's, and is called by tests of a row",
    "workbench/starter/reward.py:brief": "a reward to start from",
    "records/metrics_file.py:comparable": "what two runs are compared by; beside the names that it leaves out",
    "model/tiny.py:write_tiny": "for benchmarks and tests, beside the model that it writes",
}
"""`file:name` that no line of the package names, with the reason."""


def unused(source: Path) -> list[str]:
    """Every public function, class, method or constant that the package defines and never uses, a test's use not being
    one, nor a word in a text or in `__all__`. Commands and what a registry finds by its file are called by name from
    outside."""
    defined: dict[str, list[str]] = {}
    used: set[str] = set()
    for path in sorted(source.rglob("*.py")):
        tree = parsed(path.read_text(encoding="utf-8"))
        used.update(_used(tree))
        place = path.relative_to(source).as_posix()
        called_from_outside = (
            place.startswith("cli/") or path.parent.relative_to(source).as_posix() in REGISTRIES
        )
        for name in () if called_from_outside else _public(tree.body):
            defined.setdefault(name, []).append(f"{place}:{name}")
    return [
        place
        for name, places in sorted(defined.items())
        if name not in used
        for place in places
        if place not in EXCEPTIONS
    ]


def _used(tree: ast.Module) -> Iterator[str]:
    """Names that are read, and those in strings that are nothing but names, such as `module:function`."""
    listed = [node for node in tree.body if isinstance(node, ast.Assign) and _names(node) == ["__all__"]]
    left_out = {id(part) for node in listed for part in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
        elif isinstance(node, ast.Constant) and re.fullmatch(r"[\w.:]+", str(node.value)):
            yield from re.findall(r"\w+", str(node.value))


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
            names = _names(node)
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


def _names(node: ast.Assign) -> list[str]:
    return [target.id for target in node.targets if isinstance(target, ast.Name)]
