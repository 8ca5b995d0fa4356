"""Rewards fail, or do not apply."""

from __future__ import annotations

from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.records import Finding, Severity


def reward_failures(
    history: History,
    facts: Facts,
    *,
    failed_limit: float = 0.01,
    critical_limit: float = 0.2,
    absent_limit: float = 0.2,
    window: int = 10,
) -> list[Finding]:
    """A share of rollouts on which a reward raised, took too long or gave NaN; or many without any reward.

    Judges by `reward/failed_count` and, by name, `reward/part/{label}/failed_count`, and by `reward/absent_fraction`.
    What fails is not random: it is the long, the strange and the hostile, so that leaving it out bends the reward.

    Args:
        history: the metrics.
        facts: of the run, for the rollouts per step.
        failed_limit: share of failures that is a warning.
        critical_limit: share of failures that is critical.
        absent_limit: share of rollouts without a reward, for whatever reason, that is a warning.
        window: steps averaged over.

    Edge case: where the number of rollouts is not known, each failure counts as over the limit.
    """
    failed, absent = (
        history.last("reward/failed_count", window),
        history.last("reward/absent_fraction", window),
    )
    findings = []
    share = failed.mean / facts.rollouts if facts.rollouts else float(failed.mean > 0)
    if failed.values and history.now("reward/failed_count") is not None and share > failed_limit:
        by_label = {
            f"reward/part/{label}/failed_count": history.last(
                f"reward/part/{label}/failed_count", window
            ).mean
            for label in history.labels("reward/part/{label}/failed_count")
        }
        worst = max(by_label, key=lambda name: by_label[name], default=None)
        which = f", most by {worst.split('/')[2]}" if worst is not None and by_label[worst] > 0 else ""
        findings.append(
            Finding(
                check="reward_failures",
                kind="failed",
                severity=Severity.CRITICAL if share > critical_limit else Severity.WARNING,
                first_step=failed.steps[0],
                last_step=history.step,
                summary=f"rewards failed on {failed.mean:.3g} rollouts per step{which}",
                evidence={"reward/failed_count": failed.mean, "share": share, "limit": failed_limit}
                | {name: value for name, value in by_label.items() if value > 0},
                causes=(
                    "a response that the reward does not expect: empty, very long, not text",
                    "a service that it asks is down or slow",
                    "a time limit that is too short",
                ),
                remedies=(
                    "read `failure` of the rollouts (groupwise sample, or rollouts/ as Parquet)",
                    "run groupwise check-reward",
                    "raise timeout_seconds or workers of that reward",
                ),
            )
        )
    elif len(absent) == window and absent.mean > absent_limit:
        findings.append(
            Finding(
                check="reward_failures",
                kind="absent",
                severity=Severity.WARNING,
                first_step=absent.steps[0],
                last_step=history.step,
                summary=f"{absent.mean:.0%} of the rollouts have no reward and teach nothing",
                evidence={"reward/absent_fraction": absent.mean, "limit": absent_limit},
                causes=("no reward applies to many rows: a column is missing or misspelled", "rewards fail"),
                remedies=("run groupwise check, which names the column", "leave such rows out of the data"),
            )
        )
    return findings
