"""The smoke run's verdict is right on every seed, and every way of breaking the learning is found."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from groupwise.workbench.smoke import CONTROLS, RISE, smoke

SEEDS = range(10)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("control", [None, *CONTROLS])
def test_ten_of_ten_seeds(control: str | None) -> None:
    rises = []
    for seed in SEEDS:
        found = smoke(seed, control=control, console=Console(file=io.StringIO()))
        rises.append(found.last - found.first)
    print(f"{control}: {min(rises):+.3f} to {max(rises):+.3f}")
    passed = [rise >= RISE for rise in rises]
    assert passed == [control is None] * len(SEEDS)
