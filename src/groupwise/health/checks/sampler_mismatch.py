"""The sampler is not the policy that is trained."""

from __future__ import annotations

from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.records import Finding, Severity


def sampler_mismatch(
    history: History,
    facts: Facts,
    *,
    clip_share: float = 0.1,
    gap_limit: float = 0.05,
    correction_low: float = 0.8,
    window: int = 5,
) -> list[Finding]:
    """Log-probs of sampler and trainer differ by more than a tenth of the clip's width.

    Judges by `sampler/gap_abs_mean`, measured before the weights move, and by `sampler/correction_mean`. Two engines
    with the same weights differ by rounding; the ratio must not take that for a change of the policy (on the gap
    between engines: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training").

    Args:
        history: the metrics.
        facts: of the run, for the clip's width.
        clip_share: of the clip's width that the gap may have.
        gap_limit: nats per token, where the surrogate has no bounds or they are not known.
        correction_low: a mean importance weight below it says that much of what was sampled is not the policy's; its
            expectation is 1.
        window: steps averaged over.

    Edge case: judged from the first step on, since no training is needed for it.
    """
    gap = history.last("sampler/gap_abs_mean", window)
    weight = history.last("sampler/correction_mean", window)
    limit = gap_limit if facts.clip_width is None else clip_share * facts.clip_width
    evidence: dict[str, float] = {"limit": limit}
    said = []
    if gap.values and history.now("sampler/gap_abs_mean") is not None and gap.mean > limit:
        evidence["sampler/gap_abs_mean"] = gap.mean
        of_width = (
            ""
            if facts.clip_width is None
            else f", more than {clip_share:g} of the clip's width of {facts.clip_width:g}"
        )
        said.append(f"sampler and trainer differ by {gap.mean:.2g} nats per token{of_width}")
    if len(weight) == window and weight.mean < correction_low:
        evidence["sampler/correction_mean"] = weight.mean
        said.append(f"the mean importance weight from sampler to trainer is {weight.mean:.2f}, not 1")
    if not said:
        return []
    return [
        Finding(
            check="sampler_mismatch",
            kind="gap",
            severity=Severity.WARNING,
            first_step=gap.steps[0] if gap.steps else weight.steps[0],
            last_step=history.step,
            summary="; ".join(said),
            evidence=evidence,
            causes=(
                "the sampler computes in another precision than the trainer",
                "top_p, top_k or min_p cut the distribution that is sampled from",
                "the sampler has older weights",
                "sampler and trainer treat the prompt or its template differently",
            ),
            remedies=(
                "set objective.old_source to trainer, so that the gap is corrected and not clipped",
                "sample in the training precision",
                "leave top_p, top_k and min_p out",
            ),
        )
    ]
