"""The policy leaves its reference."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.records import Finding, Severity


def kl_runaway(
    history: History,
    facts: Facts,
    *,
    token_limit: float = 0.8,
    jump: float = 5.0,
    sudden: float = 3.0,
    jump_above: float = 0.05,
    window: int = 20,
) -> list[Finding]:
    """KL per token above a limit, or at many times what it was.

    Judges by `kl/token_mean`. The limit is the one that guides to GRPO give, at which text falls apart. A jump has
    to last for two steps, since k3 is the exp of what one rare token may decide; it is judged against the median of the
    steps before and the largest of the last three, so that a steady rise, which training is, is none: KL grows as the
    square of the way gone, and as its fourth power in a warm-up.

    Args:
        history: the metrics.
        facts: of the run; not used.
        token_limit: nats per token that are too much.
        jump: so many times the median of the steps before is a jump.
        sudden: so many times the largest of the last three steps it has to be as well.
        jump_above: nats per token below which nothing is called a jump, since near 0 ratios mean nothing.
        window: steps that the median is of; a jump needs half as many.

    Edge case: two steps in a row above the limit are critical, one alone is a warning; a run without KL has no finding.
    """
    now = history.now("kl/token_mean")
    if now is None:
        return []
    recent = history.last("kl/token_mean", window + 1)
    before = recent.values[:-1]
    usual = sorted(before)[len(before) // 2] if before else 0.0
    evidence = {"kl/token_mean": now, "median before": usual}
    for name in ("kl/beta", "training/learning_rate", "kl/rollout_mean"):
        value = history.now(name)
        if value is not None:
            evidence[name] = value
    if now > token_limit:
        twice = bool(before) and before[-1] > token_limit
        return [
            _finding(
                history,
                kind="limit",
                severity=Severity.CRITICAL if twice else Severity.WARNING,
                first=recent.steps[-2] if twice else history.step,
                summary=f"KL is {now:.3g} nats per token, above {token_limit:g}",
                evidence=evidence | {"token_limit": token_limit},
            )
        ]
    if _jumped(recent.values, jump=jump, sudden=sudden, jump_above=jump_above, least_steps=window // 2):
        return [
            _finding(
                history,
                kind="jump",
                severity=Severity.WARNING,
                first=recent.steps[0],
                summary=f"KL jumped to {now:.3g} nats per token, from {usual:.3g} in the steps before",
                evidence=evidence | {"jump": jump},
            )
        ]
    return []


def _jumped(
    values: Sequence[float], *, jump: float, sudden: float, jump_above: float, least_steps: int
) -> bool:
    """The lower of the last two values is many times what was before them."""
    *before, first, second = values if len(values) > least_steps + 1 else (0.0, 0.0)
    if not before:
        return False
    lasting = min(first, second)
    usual, latest = sorted(before)[len(before) // 2], max(before[-3:])
    return lasting > max(jump_above, jump * usual, sudden * latest)


def _finding(
    history: History, *, kind: str, severity: Severity, first: int, summary: str, evidence: dict[str, float]
) -> Finding:
    free = evidence.get("kl/beta") == 0
    causes = [
        "the learning rate is too high",
        "a reward that grows without bound, or is exploited, pulls the policy away",
        "too many updates per batch",
    ]
    causes.insert(0 if free else 1, "the KL coefficient is 0" if free else "the KL coefficient is too small")
    return Finding(
        check="kl_runaway",
        kind=kind,
        severity=severity,
        first_step=first,
        last_step=history.step,
        summary=summary,
        evidence=evidence,
        causes=tuple(causes),
        remedies=(
            "go back to the last checkpoint before it",
            "lower training.learning_rate to a third",
            "raise objective.kl.beta, or give objective.kl.controller a target",
            "read the rollouts of the highest reward",
        ),
    )
