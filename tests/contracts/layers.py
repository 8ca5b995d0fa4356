"""Which room may import which, and who may import torch: read from the source, not from memory."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.contracts.sources import parsed

EVERYTHING = frozenset(
    {
        "records",
        "objective",
        "config",
        "prompts",
        "checkpoint",
        "health",
        "model",
        "rollouts",
        "rewards",
        "training",
        "evaluate",
        "report",
        "workbench",
        "cli",
    }
)
MAY_IMPORT: dict[str, frozenset[str]] = {
    "records": frozenset(),
    "objective": frozenset(),
    "config": frozenset({"objective"}),  # the registries' names and settings
    "prompts": frozenset({"records", "config"}),
    "checkpoint": frozenset({"records", "config", "model"}),  # it saves and restores one
    "health": frozenset({"records", "config"}),
    "model": frozenset({"config"}),
    "rollouts": frozenset({"records", "config", "model"}),
    "rewards": frozenset({"records", "config", "model"}),
    "training": EVERYTHING - {"report", "workbench", "cli"},
    "evaluate": frozenset({"records", "config", "prompts", "health", "rollouts", "rewards", "model"}),
    "report": frozenset({"records"}),
    "workbench": EVERYTHING - {"cli"},
    "cli": EVERYTHING,
    "__init__": EVERYTHING - {"cli"},
    "__main__": frozenset({"cli"}),
    "errors": frozenset({"secrets"}),
    "invocation": frozenset(),
    "registry": frozenset(),
    "secrets": frozenset(),
}
"""Room (or file beside the rooms) to the rooms that it may import, itself aside."""

FOR_ALL = frozenset({"errors", "invocation", "registry", "secrets"})
HEAVY = frozenset(
    {"torch", "transformers", "peft", "safetensors", "gguf", "tokenizers", "accelerate", "datasets"}
)
WITHOUT_TORCH = frozenset(
    {"records", "objective", "config", "errors", "invocation", "registry", "secrets", "__init__"}
)
"""Import nothing heavy but for type checkers, not inside functions either."""
LIGHT_REGISTRIES = ("rewards/scorers", "health/checks")
"""Names and settings are read from these, so nothing heavy when the module is imported; inside functions it may be."""
LAZY = frozenset({"cli", "__init__"})
"""Import rooms inside functions only, so that `--help` and `import groupwise` stay instant."""


@dataclass(frozen=True)
class Import:
    """One imported module as written in one line."""

    line: int
    module: str
    at_run_time: bool
    """False under `if TYPE_CHECKING`."""
    inside_function: bool


def imports(tree: ast.Module, package: str) -> Iterator[Import]:
    """Every import of a module that lies in `package` (dotted), relative ones resolved."""

    def visit(node: ast.AST, at_run_time: bool, inside: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, at_run_time, inside)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            for alias in node.names:
                yield Import(node.lineno, f"{base}.{alias.name}", at_run_time, inside)
        elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for child in node.body:
                yield from visit(child, False, inside)
            for child in node.orelse:
                yield from visit(child, at_run_time, inside)
        else:
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                yield from visit(child, at_run_time, inside or is_function)

    return visit(tree, True, False)


def layer_faults(source: Path) -> list[str]:
    """Every import that breaks a rule, as `file:line: sentence`. `source` is the package's folder."""
    faults: list[str] = []
    for path in sorted(source.rglob("*.py")):
        place = path.relative_to(source)
        room = place.parts[0].removesuffix(".py")
        package = ".".join([source.name, *place.parent.parts])
        if room not in MAY_IMPORT:
            faults.append(f"{place}: {room} is not a room of the house")
            continue
        for found in imports(parsed(path.read_text(encoding="utf-8")), package):
            faults += [
                f"{place}:{found.line}: {sentence}" for sentence in _faults(place, room, found, source.name)
            ]
    return faults


def circles(source: Path) -> list[set[str]]:
    """Modules that import each other at run time, inside functions too: the largest sets of which each leads to each.
    `source` is the package's folder."""
    modules: dict[str, Path] = {}
    for path in source.rglob("*.py"):
        parts = path.relative_to(source.parent).with_suffix("").parts
        modules[".".join(parts).removesuffix(".__init__")] = path
    leads: dict[str, set[str]] = {}
    for name, path in modules.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        leads[name] = set()
        for found in imports(parsed(path.read_text(encoding="utf-8")), package):
            target = found.module if found.module in modules else found.module.rpartition(".")[0]
            if found.at_run_time and target in modules and target != name:
                leads[name].add(target)
    reached = {name: _reached(name, leads) for name in leads}
    return [
        circle
        for name in leads
        if name in reached[name]
        and name == min(circle := {other for other in reached[name] if name in reached[other]})
    ]


def _reached(start: str, leads: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        more = leads[waiting.pop()] - reached
        reached |= more
        waiting += more
    return reached


def _faults(place: Path, room: str, found: Import, name: str) -> Iterator[str]:
    top, *rest = found.module.split(".")
    if top == name:
        target = rest[0] if rest else "__init__"
        if target not in MAY_IMPORT:
            target = "__init__"  # something defined in the package itself
        if target in FOR_ALL or target == room:
            return
        if target not in MAY_IMPORT[room]:
            if target != "__init__" or room not in ("cli", "workbench"):
                yield f"{room} may not import {found.module}"
        elif room in LAZY and found.at_run_time and not found.inside_function:
            yield f"{room} imports {found.module} outside a function, which slows the start of every command"
    elif top in HEAVY and found.at_run_time:
        if room in WITHOUT_TORCH:
            yield f"{room} imports {top} at run time; under TYPE_CHECKING it may"
        elif not found.inside_function and place.as_posix().startswith(LIGHT_REGISTRIES):
            yield f"a registry module imports {top} when it is read; inside its function it may"
        elif not found.inside_function and room in LAZY:
            yield f"{room} imports {top} outside a function, which slows the start of every command"
