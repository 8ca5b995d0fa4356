"""How large a file and a function may be."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.contracts.sources import parsed

FILE_LINES = 500
FUNCTION_LINES = 80
FILES: dict[str, int] = {"training/loop.py": 150}
"""Files with a limit of their own."""
EXCEPTIONS: dict[str, str] = {}
"""`file` or `file:function` that may be larger, with the reason."""
FORBIDDEN = frozenset({"utils", "util", "common", "helpers", "helper", "core", "misc"})
"""A function lives in the room whose noun it serves."""


def size_faults(source: Path) -> list[str]:
    """Every file and function over its limit, and every name that says nothing, as `file: sentence`."""
    faults: list[str] = []
    for path in sorted(source.rglob("*")):
        place = path.relative_to(source).as_posix()
        if path.name.removesuffix(".py") in FORBIDDEN:
            faults.append(f"{place}: a name that says nothing of what is in it")
        if path.suffix != ".py":
            continue
        text = path.read_text(encoding="utf-8")
        limit = FILES.get(place, FILE_LINES)
        lines = len(text.splitlines())
        if lines > limit and place not in EXCEPTIONS:
            faults.append(f"{place}: {lines} lines, over {limit}")
        for node in ast.walk(parsed(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES and f"{place}:{node.name}" not in EXCEPTIONS:
                    faults.append(
                        f"{place}:{node.lineno}: {node.name} has {lines} lines, over {FUNCTION_LINES}"
                    )
    return faults


def stale_exceptions(source: Path) -> list[str]:
    """Exceptions for what is gone or no longer too large."""
    kept = dict(EXCEPTIONS)
    EXCEPTIONS.clear()
    try:
        faults = size_faults(source)
    finally:
        EXCEPTIONS.update(kept)
    return [name for name in kept if not any(_names(fault, name) for fault in faults)]


def _names(fault: str, name: str) -> bool:
    file, _, function = name.partition(":")
    return fault.startswith(f"{file}:") and (f": {function} has " in fault if function else ": " in fault)
