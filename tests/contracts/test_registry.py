"""Every entry of every registry keeps the rules, and the names on offer are the files that are there."""

import inspect
from pathlib import Path

import pytest

import groupwise
from groupwise import registry
from tests.contracts.registries import REGISTRIES, registry_faults

SOURCE = Path(groupwise.__file__).parent
TESTS = Path(__file__).parents[1]


def entries() -> list[tuple[str, str]]:
    return [
        (f"groupwise.{folder.replace('/', '.')}", path.stem)
        for folder in REGISTRIES
        for path in sorted((SOURCE / folder).glob("*.py"))
        if not path.name.startswith("_")
    ]


def test_every_entry_keeps_the_rules() -> None:
    assert registry_faults(SOURCE, TESTS) == []


@pytest.mark.parametrize(("package", "name"), entries(), ids=lambda value: value.rsplit(".", 1)[-1])
def test_an_entry_is_found_by_its_name_with_its_settings(package: str, name: str) -> None:
    assert name in registry.names(package)
    function = registry.find(package, name)
    assert function.__name__ == name
    assert function.__module__ == f"{package}.{name}"
    for setting in registry.settings(function).values():
        assert setting.default is not inspect.Parameter.empty


def test_the_objective_has_entries_to_hold_to_the_rules() -> None:
    found = {package.rsplit(".", 1)[-1] for package, _ in entries()}
    assert {"advantages", "surrogates", "aggregations"} <= found
