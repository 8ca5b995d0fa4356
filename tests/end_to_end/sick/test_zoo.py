"""Every illness is named by its check in time, and who is well is left alone."""

from pathlib import Path

import pytest

from groupwise import registry
from groupwise.config.health import CHECKS
from tests.end_to_end.sick.patients import HEALTHY, SICK, Patient, course


@pytest.mark.long
@pytest.mark.parametrize("patient", SICK, ids=[each.name for each in SICK])
def test_it_is_named_by_its_check_in_time(patient: Patient, clinic: Path) -> None:
    found = course(patient, clinic / "run")
    assert found.found_at is not None, f"found instead: {found.alarms}"
    assert found.found_at <= patient.within


@pytest.mark.long
@pytest.mark.parametrize("patient", HEALTHY, ids=[each.name for each in HEALTHY])
def test_who_is_well_has_no_finding_above_info(patient: Patient, clinic: Path) -> None:
    assert course(patient, clinic / "run").alarms == {}


def test_every_check_has_a_patient() -> None:
    assert {each.check for each in SICK} == set(registry.names(CHECKS))
    assert len(SICK) >= 12
    assert len(HEALTHY) == 10
