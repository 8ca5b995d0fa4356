"""The policy has stopped trying anything else."""

from __future__ import annotations

from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.records import Finding, Severity


def entropy_collapse(
    history: History,
    facts: Facts,
    *,
    share: float = 0.1,
    least: float = 0.05,
    first: int = 5,
    window: int = 5,
) -> list[Finding]:
    """Entropy at a small share of what it was in the first steps, or next to nothing from the start.

    Judges by `policy/entropy`. Entropy is spent on reward (Cui et al. 2025, arXiv 2505.22617: R = b - a exp H), so a
    policy without any learns no more; DAPO's clip-higher is against this. It also ends where a task is solved.

    Args:
        history: the metrics.
        facts: of the run; not used.
        share: of the entropy of the first steps that is left.
        least: nats per token; below it from the start is too little to explore with.
        first: steps that make the start.
        window: steps averaged over.

    Edge case: an info where nine in ten rollouts are right; no finding before `first` + `window` steps, or where
    sampling is greedy (entropy exactly 0 is that of a policy with one choice, and is a finding).
    """
    start, now = history.first("policy/entropy", first), history.last("policy/entropy", window)
    if len(history.all("policy/entropy")) < first + window or history.now("policy/entropy") is None:
        return []
    passed = history.last("reward/pass_fraction", window).mean
    evidence = {"policy/entropy": now.mean, "entropy of the first steps": start.mean, "share": share}
    temperature = history.now("sampler/temperature")
    if temperature is not None:
        evidence["sampler/temperature"] = temperature
    causes = [
        "the policy has settled on one way to answer, right or wrong",
        "clipping from above holds rare tokens down",
        "the learning rate is too high, or too many updates are made per batch",
    ]
    remedies = [
        "set objective.surrogate.high above its low, as DAPO's 0.28 over 0.2",
        "raise rollout.temperature, or give objective.entropy_bonus a small value",
        "raise objective.kl.beta",
        "lower training.learning_rate",
    ]
    if start.mean < least and now.mean < least:
        kind = "none"
        summary = f"entropy is {now.mean:.2g} nats per token and was {start.mean:.2g} from the start"
        causes.insert(0, "the temperature is too low")
        remedies.insert(0, "set rollout.temperature to 1")
    elif now.mean < share * start.mean:
        kind = "collapse"
        summary = f"entropy fell from {start.mean:.2g} to {now.mean:.2g} nats per token"
    else:
        return []
    return [
        Finding(
            check="entropy_collapse",
            kind=kind,
            severity=Severity.INFO if passed >= 0.9 else Severity.WARNING,
            first_step=now.steps[0],
            last_step=history.step,
            summary=summary,
            evidence=evidence,
            causes=tuple(causes),
            remedies=tuple(remedies),
        )
    ]
