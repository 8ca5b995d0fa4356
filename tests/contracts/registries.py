"""The folder is the registry: what each file in it owes. Read from the source, so that it holds for any tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.contracts.sources import parsed

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Rules:
    """What one registry folder asks beyond the rules of all."""

    formula: bool = False
    """A `FORMULA` that names every setting, and a source in the docstring."""
    columns: bool = False
    """Positional arguments may have defaults: they are columns of the data."""
    beside: frozenset[str] = field(default=frozenset())
    """Public functions that a module may hold beside its own."""


REGISTRIES: dict[str, Rules] = {
    "objective/advantages": Rules(formula=True, beside=frozenset({"value_targets"})),
    "objective/surrogates": Rules(formula=True, beside=frozenset({"outside", "width"})),
    "objective/aggregations": Rules(formula=True),
    "objective/kl_controllers": Rules(formula=True),
    "rewards/scorers": Rules(columns=True, beside=frozenset({"needed_columns"})),
    "health/checks": Rules(),
}


def registry_faults(source: Path, tests: Path) -> list[str]:
    """Every breach as `file: sentence`. `source` is the package's folder, `tests` the folder of its tests."""
    faults: list[str] = []
    for folder, rules in REGISTRIES.items():
        for path in sorted((source / folder).glob("*.py")):
            if not path.name.startswith("_"):
                place = path.relative_to(source)
                faults += [f"{place}: {sentence}" for sentence in _module_faults(path, rules)]
                faults += [f"{place}: {sentence}" for sentence in _test_faults(place, tests)]
    return faults


def _module_faults(path: Path, rules: Rules) -> Iterator[str]:
    tree = parsed(path.read_text(encoding="utf-8"))
    functions = {node.name: node for node in tree.body if isinstance(node, Function)}
    for name in functions:
        if not name.startswith("_") and name != path.stem and name not in rules.beside:
            yield f"holds a second public function, {name}"
    own = functions.get(path.stem)
    if own is None:
        yield f"holds no function called {path.stem}"
        return
    yield from _signature_faults(own, rules)
    yield from _docstring_faults(own, rules)
    if rules.formula:
        yield from _formula_faults(tree, own)


def _signature_faults(function: Function, rules: Rules) -> Iterator[str]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    if not positional:
        yield "its function takes nothing to work on"
    if arguments.defaults and not rules.columns:
        yield "an argument with a default is a setting, so it is keyword-only (after *)"
    if arguments.vararg is not None:
        yield "takes *args, which say nothing"
    if arguments.kwarg is not None and not rules.columns:
        yield "takes **keywords, in which a mistyped setting is lost"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is None:
            yield f"the setting {argument.arg} has no default"
    for argument in [*positional, *arguments.kwonlyargs]:
        if argument.annotation is None:
            yield f"the argument {argument.arg} has no type"
    if function.returns is None:
        yield "what it returns has no type"


def _docstring_faults(function: Function, rules: Rules) -> Iterator[str]:
    text = ast.get_docstring(function) or ""
    if not re.search(r"\bEdge cases?:", text):
        yield "its docstring says no `Edge case:`"
    if rules.formula and "Source:" not in text:
        yield "its docstring says no `Source:`"
    arguments = function.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        if not re.search(rf"^\s+{argument.arg}: \S", text, re.MULTILINE):
            yield f"its docstring does not explain the argument {argument.arg}"


def _formula_faults(tree: ast.Module, function: Function) -> Iterator[str]:
    formulas: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name.startswith("FORMULA"):
                formulas[name] = ast.literal_eval(node.value)
    if "FORMULA" not in formulas:
        yield "holds no FORMULA"
        return
    settings = {
        argument.arg: ast.literal_eval(default)
        for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        if default is not None
    }
    for name, formula in formulas.items():
        # A setting that is off by default (None) gets a number where its own formula shows it.
        values = {
            key: 2.0 if value is None and name != "FORMULA" else value for key, value in settings.items()
        }
        try:
            formula.format(**values)
        except (KeyError, ValueError, TypeError, IndexError) as error:
            yield f"{name} cannot be filled in with the settings: {type(error).__name__} {error}"
    for key in settings:
        if not any(re.search(rf"{{{key}\b", formula) for formula in formulas.values()):
            yield f"no FORMULA shows the setting {key}"


def _test_faults(place: Path, tests: Path) -> Iterator[str]:
    """A test file of the same room must import the function (by its module) and bear its name or mention it."""
    module = ".".join(place.with_suffix("").parts)
    folder = ".".join(place.parent.parts)
    name = place.stem
    imported = re.compile(
        rf"\b{re.escape(module)}\b|\b{re.escape(folder)} import [^\n]*\b{re.escape(name)}\b"
    )
    for path in (tests / place.parts[0]).rglob("test_*.py"):
        if imported.search(path.read_text(encoding="utf-8")):
            return
    yield f"no test under tests/{place.parts[0]} imports {module}"
