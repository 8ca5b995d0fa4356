"""A gradient many times as large as usual."""

from __future__ import annotations

from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.records import Finding, Severity


def gradient_spike(
    history: History, facts: Facts, *, factor: float = 10.0, critical_factor: float = 100.0, window: int = 30
) -> list[Finding]:
    """The norm of the gradient is many times the median of the steps before.

    Judges by `grad/norm`, before it is scaled down. The median does not move with earlier spikes, as a mean would.
    Spikes precede divergence in large runs, where batches are skipped for them (PaLM, arXiv 2204.02311, section 5.1).

    Args:
        history: the metrics.
        facts: of the run, for the norm that gradients are scaled down to.
        factor: times the median that is a spike.
        critical_factor: times the median that is critical where nothing scales the gradient down.
        window: steps that the median is of; a third of them must be there.

    Edge case: steps without a gradient (norm 0) do not count. A spike that `training.max_grad_norm` scales down to less
    than `factor` medians is an info: it cannot do much.
    """
    now = history.now("grad/norm")
    recent = history.last("grad/norm", window + 1)
    before = [value for value in recent.values[:-1] if value > 0]
    if now is None or len(before) < window / 3:
        return []
    usual = sorted(before)[len(before) // 2]
    if now < factor * usual:
        return []
    limit = facts.max_grad_norm
    applied = now if limit is None else min(now, limit)
    severity = Severity.CRITICAL if applied >= critical_factor * usual else Severity.WARNING
    if applied < factor * usual:
        severity = Severity.INFO
    return [
        Finding(
            check="gradient_spike",
            kind="spike",
            severity=severity,
            first_step=recent.steps[0],
            last_step=history.step,
            summary=f"the gradient's norm is {now:.3g}, {now / usual:.0f} times the median of the steps before",
            evidence={"grad/norm": now, "median before": usual, "norm applied": applied, "factor": factor},
            causes=(
                "one batch with an extreme advantage, such as a single rollout right among many",
                "the learning rate is too high, and the run is about to diverge",
                "the KL term, where the policy has given up a token of the reference",
            ),
            remedies=(
                "look at the step's rollouts: which have the largest advantages?",
                "set training.max_grad_norm to 1 or less",
                "lower training.learning_rate",
            ),
        )
    ]
