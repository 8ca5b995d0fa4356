"""Flipping a sign, a divisor or a bound anywhere in the mathematics makes the hand-worked numbers fail."""

import ast
import copy
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import groupwise.objective

ROOT = Path(groupwise.objective.__file__).parent
OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.Gt,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.BitAnd: ast.BitOr,
}
NAMES = {"minimum": "maximum", "maximum": "minimum", "min": "max", "max": "min"}


def modules() -> list[str]:
    """Every module with mathematics in it, by its dotted name below the objective."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        if path.name != "__init__.py":
            found.append(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return found


def hand_worked(name: str) -> Callable[[ModuleType], None]:
    *folders, last = name.split(".")
    check: Callable[[ModuleType], None] = importlib.import_module(
        ".".join(["tests.objective", *folders, f"test_{last}"])
    ).hand_worked
    return check


def mutants(source: str) -> Iterator[tuple[str, ast.Module]]:
    """The module with one operator, comparison, sign or bound inside a function's body turned around."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    places = [node for function in functions for statement in function.body for node in ast.walk(statement)]
    for number, node in enumerate(places):
        if not turn(copy.deepcopy(node)):
            continue
        changed = copy.deepcopy(tree)
        copies = [n for n in ast.walk(changed) if isinstance(n, ast.FunctionDef)]
        twin = [n for function in copies for statement in function.body for n in ast.walk(statement)][number]
        turn(twin)
        yield f"line {getattr(node, 'lineno', '?')}: {ast.unparse(node)} -> {ast.unparse(twin)}", changed


def turn(node: ast.AST) -> bool:
    """Turn a node around, if it is one that can be."""
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        node.op = OPERATORS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
        node.ops = [OPERATORS[type(node.ops[0])]()]  # type: ignore[list-item]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node.op = ast.UAdd()
    elif isinstance(node, ast.Attribute) and node.attr in NAMES:
        node.attr = NAMES[node.attr]
    elif isinstance(node, ast.Name) and node.id in NAMES:
        node.id = NAMES[node.id]
    elif isinstance(node, ast.keyword) and node.arg in NAMES:
        node.arg = NAMES[node.arg]
    else:
        return False
    return True


def executed(name: str, tree: ast.Module) -> ModuleType:
    module = ModuleType(f"mutant_{name.replace('.', '_')}")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        exec(compile(ast.fix_missing_locations(tree), name, "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]
    return module


@pytest.mark.parametrize("name", modules())
def test_every_turned_sign_is_noticed(name: str) -> None:
    source = (ROOT / Path(*name.split("."))).with_suffix(".py").read_text(encoding="utf-8")
    check = hand_worked(name)
    check(executed(name, ast.parse(source)))
    unnoticed = []
    for description, tree in mutants(source):
        try:
            with np.errstate(all="ignore"):
                check(executed(name, tree))
        except Exception:
            continue
        unnoticed.append(description)
    assert unnoticed == []


def test_the_mutants_are_many() -> None:
    counts = {
        name: sum(1 for _ in mutants((ROOT / Path(*name.split("."))).with_suffix(".py").read_text()))
        for name in modules()
    }
    assert counts["advantages.group_zscore"] >= 5
    assert counts["surrogates.clip"] >= 10
    assert counts["loss"] >= 10
    assert sum(counts.values()) >= 50
