from groupwise.health.checks.reference_drift import reference_drift
from tests.health.series import FACTS, ever, history, kinds


def test_a_reference_that_moves() -> None:
    assert kinds(reference_drift(history(3, {"reference/drift_abs_max": [0.0, 0.0, 0.002]}), FACTS)) == [
        ("moved", "critical")
    ]


def test_rounding_and_no_measurement_are_silent() -> None:
    assert ever(reference_drift, 5, {"reference/drift_abs_max": 1e-5}) == []
    assert ever(reference_drift, 2, {"reference/drift_abs_max": [None, None]}) == []
