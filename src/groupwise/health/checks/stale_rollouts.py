"""Rollouts are trained on long after their policy is gone."""

from __future__ import annotations

from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.records import Finding, Severity


def stale_rollouts(
    history: History, facts: Facts, *, limit_steps: float = 4.0, critical_steps: float = 16.0, window: int = 5
) -> list[Finding]:
    """The policy has made many updates since the weights that sampled the batch.

    Judges by `sampler/lag_updates_mean`. AReaL (arXiv 2505.24298) finds that plain PPO loses accuracy from a staleness
    of a few steps on, and with a corrected objective from about eight.

    Args:
        history: the metrics.
        facts: of the run, for the updates per step.
        limit_steps: steps of lag that are a warning.
        critical_steps: steps of lag that are critical.
        window: steps averaged over.

    Edge case: where the updates per step are not known, each counts as a step.
    """
    lag = history.last("sampler/lag_updates_mean", window)
    if not lag.values or history.now("sampler/lag_updates_mean") is None:
        return []
    steps = lag.mean / (facts.updates_per_step or 1)
    if steps < limit_steps:
        return []
    return [
        Finding(
            check="stale_rollouts",
            kind="lag",
            severity=Severity.CRITICAL if steps >= critical_steps else Severity.WARNING,
            first_step=lag.steps[0],
            last_step=history.step,
            summary=f"rollouts are {lag.mean:.3g} updates ({steps:.3g} steps) older than the policy",
            evidence={
                "sampler/lag_updates_mean": lag.mean,
                "lag in steps": steps,
                "limit_steps": limit_steps,
            },
            causes=(
                "the sampler does not take up new weights",
                "sampling runs too far ahead of training",
            ),
            remedies=(
                "check that the engine's load_weights took effect",
                "bound how far sampling may run ahead",
                "set objective.old_source to trainer with a correction_cap",
            ),
        )
    ]
