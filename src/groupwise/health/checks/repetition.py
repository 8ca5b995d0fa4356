"""Responses say the same again and again."""

from __future__ import annotations

from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.records import Finding, Severity


def repetition(
    history: History,
    facts: Facts,
    *,
    limit: float = 0.3,
    critical_limit: float = 0.6,
    rise: float = 1.5,
    first: int = 5,
    window: int = 5,
) -> list[Finding]:
    """A large share of a response's runs of four tokens stood in it before, and more so than at the start.

    Judges by `diversity/repeated_4_fraction`. Repetition is known as the end that likelihood training pulls a policy
    to (Welleck et al. 2019, arXiv 1908.04319, which counts repeated 4-grams too). Prose has a few per cent, code and
    tables up to a fifth, so that the limit is above these.

    Args:
        history: the metrics.
        facts: of the run; not used.
        limit: share that is a warning.
        critical_limit: share that is critical.
        rise: a share that is less than so many times that of the first steps is an info: the model came with it.
        first: steps that make the start.
        window: steps averaged over.

    Edge case: no finding before `window` steps; responses of fewer than four tokens count nowhere.
    """
    now = history.last("diversity/repeated_4_fraction", window)
    if len(now) < window or history.now("diversity/repeated_4_fraction") is None or now.mean < limit:
        return []
    start = history.first("diversity/repeated_4_fraction", first).mean
    severity = Severity.CRITICAL if now.mean >= critical_limit else Severity.WARNING
    if now.mean < rise * start:
        severity = Severity.INFO
    return [
        Finding(
            check="repetition",
            kind="within",
            severity=severity,
            first_step=now.steps[0],
            last_step=history.step,
            summary=f"{now.mean:.0%} of the runs of four tokens stood in the same response before "
            f"({start:.0%} in the first steps)",
            evidence={"diversity/repeated_4_fraction": now.mean, "first steps": start, "limit": limit},
            causes=(
                "a reward grows with length, or with something that can be said again",
                "nothing holds the policy to fluent text (KL coefficient 0 or too small)",
                "the learning rate is too high",
            ),
            remedies=(
                "read some rollouts",
                "add the scorer repetition",
                "raise objective.kl.beta",
                "go back to a checkpoint before it and lower training.learning_rate",
            ),
        )
    ]
