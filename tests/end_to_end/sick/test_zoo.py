"""Every illness is named by its check in time, and who is well is left alone."""

from collections.abc import Callable
from pathlib import Path

import pytest

from groupwise import registry
from groupwise.config.health import CHECKS
from tests.end_to_end.sick.patients import HEALTHY, SICK, Patient, course


def in_two_of_three(holds: Callable[[int], bool]) -> bool:
    """What one seed shows hangs on the last bits that a processor computes, so a miss is tried twice more."""
    return holds(0) or (holds(1) and holds(2))


@pytest.mark.long
@pytest.mark.parametrize("patient", SICK, ids=[each.name for each in SICK])
def test_it_is_named_by_its_check_in_time(patient: Patient, clinic: Path) -> None:
    def named(seed: int) -> bool:
        found = course(patient, clinic / f"run-{seed}", seed=seed)
        print(f"seed {seed}: at {found.found_at}, of {patient.within}; all alarms: {found.alarms}")
        return found.found_at is not None and found.found_at <= patient.within

    assert in_two_of_three(named)


@pytest.mark.long
@pytest.mark.parametrize("patient", HEALTHY, ids=[each.name for each in HEALTHY])
def test_who_is_well_has_no_finding_above_info(patient: Patient, clinic: Path) -> None:
    def quiet(seed: int) -> bool:
        alarms = course(patient, clinic / f"run-{seed}", seed=seed).alarms
        print(f"seed {seed}: {alarms}")
        return alarms == {}

    assert in_two_of_three(quiet)


def test_every_check_has_a_patient() -> None:
    assert {each.check for each in SICK} == set(registry.names(CHECKS))
    assert len(SICK) >= 12
    assert len(HEALTHY) == 10
