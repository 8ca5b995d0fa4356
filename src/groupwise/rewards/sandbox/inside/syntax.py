"""Compiles sources and runs none: one answer for each, on the two descriptors that are given."""

from __future__ import annotations

import ast
import resource
import sys

from . import wire

SECONDS = 10
_MEMORY = 1 << 30


def main() -> None:
    """`READ WRITE`: frames with a source each, answered by `1` or `0`."""
    read, write = map(int, sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        try:
            source = wire.receive(read)
        except wire.ClosedError:
            return
        wire.send(write, "1" if is_program(source) else "0")


def is_program(source: str) -> bool:
    """True when Python takes the source and there is more in it than names and literals."""
    try:
        tree = ast.parse(source)
        compile(source, "program", "exec", dont_inherit=True)
        return any(_does_something(statement) for statement in tree.body)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return False


def _does_something(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Expr):
        return True
    return any(
        isinstance(node, ast.Call | ast.Await | ast.Yield | ast.YieldFrom) for node in ast.walk(statement)
    )
