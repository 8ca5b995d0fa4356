"""Many responses are cut off by the limit of new tokens."""

from __future__ import annotations

import math

from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.records import Finding, Severity


def truncation(
    history: History,
    facts: Facts,
    *,
    limit: float = 0.2,
    critical_limit: float = 0.5,
    harm: float = 0.05,
    window: int = 10,
) -> list[Finding]:
    """A large share of responses ends at the limit and not by the model's own decision.

    Judges by `length/truncated_fraction`. A response that is cut off is judged wrong for its length, which is noise in
    the reward (DAPO, arXiv 2503.14476, section 3.4). One fifth is where practitioners call it an alarm.

    Args:
        history: the metrics.
        facts: of the run; not used.
        limit: share that is a warning.
        critical_limit: share that is critical.
        harm: where right answers are cut off nearly as often as wrong ones, by this difference at most, being cut off
            does no harm and the finding is an info.
        window: steps averaged over.

    Edge case: no finding before half the window has passed.
    """
    cut = history.last("length/truncated_fraction", window)
    if len(cut) < window / 2 or history.now("length/truncated_fraction") is None or cut.mean <= limit:
        return []
    evidence = {"length/truncated_fraction": cut.mean, "limit": limit}
    apart = ("length/right_truncated_fraction", "length/wrong_truncated_fraction")
    right, wrong = (history.last(name, window).mean for name in apart)
    shares = zip(apart, (right, wrong), strict=True)
    evidence |= {name: value for name, value in shares if math.isfinite(value)}
    severity = Severity.CRITICAL if cut.mean > critical_limit else Severity.WARNING
    if right >= (0.0 if math.isnan(wrong) else wrong) - harm:
        severity = Severity.INFO
    return [
        Finding(
            check="truncation",
            kind="limit",
            severity=severity,
            first_step=cut.steps[0],
            last_step=history.step,
            summary=f"{cut.mean:.0%} of the responses are cut off at the limit of new tokens",
            evidence=evidence,
            causes=(
                "rollout.max_new_tokens is too small for the task",
                "the model does not know how to end (a base model, or a chat template that is not its own)",
                "responses grow (see length_inflation)",
            ),
            remedies=(
                "raise rollout.max_new_tokens",
                "look whether responses end: rollout.stop_tokens, model.chat_template",
                "set objective.truncated to mask",
                "ask for short answers in the prompt",
            ),
        )
    ]
