"""The frozen reference has changed."""

from __future__ import annotations

from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.records import Finding, Severity


def reference_drift(history: History, facts: Facts, *, limit: float = 1e-3) -> list[Finding]:
    """The reference gives other log-probs for a fixed probe than it gave at the start.

    Judges by `reference/drift_abs_max`. A frozen model on the same tokens gives the same numbers; what the order of
    additions changes is below 1e-5 nats in float32.

    Args:
        history: the metrics.
        facts: of the run; not used.
        limit: nats on any token of the probe.

    Edge case: steps at which the probe was not measured have no finding.
    """
    drift = history.now("reference/drift_abs_max")
    if drift is None or drift <= limit:
        return []
    return [
        Finding(
            check="reference_drift",
            kind="moved",
            severity=Severity.CRITICAL,
            first_step=history.step,
            last_step=history.step,
            summary=f"the reference's log-probs of the probe moved by up to {drift:.2g} nats",
            evidence={"reference/drift_abs_max": drift, "limit": limit},
            causes=(
                "the reference shares weights with the policy and is trained along",
                "something loaded other weights into it",
            ),
            remedies=(
                "stop the run: its KL has been measured against a moving target since the last probe",
                "report it, unless code of yours touches the reference",
            ),
        )
    ]
