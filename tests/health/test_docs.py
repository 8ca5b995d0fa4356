"""docs/health.md says of every check what it means, by which thresholds, how to confirm it and what to try."""

import re
from pathlib import Path

import pytest

from groupwise import registry
from groupwise.config.health import CHECKS

PAGE = (Path(__file__).parents[2] / "docs" / "health.md").read_text(encoding="utf-8")
SECTIONS = {
    part.partition("\n")[0]: " ".join(part.split()) for part in re.split(r"^## ", PAGE, flags=re.M)[1:]
}


@pytest.mark.parametrize("name", registry.names(CHECKS))
def test_every_check_is_explained_with_its_thresholds(name: str) -> None:
    settings = registry.settings(registry.find(CHECKS, name))
    thresholds = ", ".join(f"`{key}` {parameter.default:g}" for key, parameter in settings.items())
    assert f"Thresholds: {thresholds}." in SECTIONS[name]
    assert "To confirm: " in SECTIONS[name]
    assert "To try: 1. " in SECTIONS[name]


def test_no_check_is_explained_that_is_not_there() -> None:
    assert set(SECTIONS) >= set(registry.names(CHECKS))
    assert {name for name in SECTIONS if re.fullmatch(r"[a-z_]+", name)} == set(registry.names(CHECKS))
