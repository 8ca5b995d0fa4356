"""A run that falls ill goes back, goes on under another setting for as long again, and ends better than it was."""

from pathlib import Path

import pytest

from tests.end_to_end.sick.recovery import ILLNESSES, STEPS, live


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", ILLNESSES)
def test_it_recovers_and_ends_above_the_run_without(name: str, seed: int, clinic: Path) -> None:
    healed = live(name, clinic / "healed", seed=seed, rollback=True)
    left = live(name, clinic / "left", seed=seed, rollback=False)
    assert healed.ill_at is not None
    assert healed.ill_at <= STEPS // 2, "so that it goes on for as many steps again"
    assert healed.after >= healed.before
    assert healed.after > left.after
