"""The policy moves far within one batch."""

from __future__ import annotations

from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.records import Finding, Severity


def ratio_extremes(
    history: History,
    facts: Facts,
    *,
    ratio_limit: float = 10.0,
    clip_limit: float = 0.3,
    narrow: float = 0.01,
    window: int = 5,
) -> list[Finding]:
    """Ratios of policy to old policy that are clamped or very large, or clipped on a large share of tokens.

    Judges by `ratio/max`, `ratio/min`, `ratio/clamped_count`, `clip/low_fraction` and `clip/high_fraction`. PPO is
    meant to move within its clip; a few per cent of clipped tokens are usual, and a third says that most of the later
    passes are thrown away (Schulman et al. 2017, arXiv 1707.06347, and practice).

    Args:
        history: the metrics.
        facts: of the run, for the number of updates per batch and the clip's width.
        ratio_limit: a ratio above it, or below its inverse, is extreme.
        clip_limit: clipped share of all tokens that is a warning.
        narrow: a clip of less width is meant to bite, and a share above the limit is an info: GSPO (arXiv 2507.18071,
            section 5.3) clips a hundred times as many tokens as GRPO at a width of 3e-4, and learns more.
        window: steps; extremes count when half of them have one, since single tokens may do anything.

    Edge case: with one update per batch every ratio is 1, and there is no finding. A log without ratios, such as TRL's,
    is judged by what is clipped alone.
    """
    judged = ("ratio/max", "clip/low_fraction", "clip/high_fraction")
    if all(history.now(name) is None for name in judged):
        return []
    largest, smallest = history.last("ratio/max", window), history.last("ratio/min", window)
    clamped = history.last("ratio/clamped_count", window)
    sides = [side for name in judged[1:] if len(side := history.last(name, window))]
    clipped = sum(side.mean for side in sides)
    evidence = {"clipped share": clipped, "clip_limit": clip_limit}
    evidence |= {"ratio/max": max(largest.values)} if largest.values else {}
    evidence |= {"ratio/min": min(smallest.values)} if smallest.values else {}
    extreme = {s for s, v in zip(largest.steps, largest.values, strict=True) if v > ratio_limit}
    extreme |= {s for s, v in zip(smallest.steps, smallest.values, strict=True) if v < 1 / ratio_limit}
    if sum(clamped.values) > 0:
        evidence["ratio/clamped_count"] = sum(clamped.values)
        kind, severity = "clamped", Severity.CRITICAL
        summary = (
            f"{sum(clamped.values):.0f} log-ratios were beyond +-20 and were clamped in {len(clamped)} steps"
        )
    elif max(map(len, sides), default=0) == window and clipped > clip_limit:
        meant = facts.clip_width is not None and facts.clip_width < narrow
        kind, severity = "clipped", Severity.INFO if meant else Severity.WARNING
        summary = f"{clipped:.0%} of the tokens are clipped"
    elif len(largest) == window and len(extreme) >= window / 2:
        kind, severity = "extreme", Severity.INFO
        summary = f"ratios reach {max(largest.values):.3g} and {evidence.get('ratio/min', 1.0):.2g}"
    else:
        return []
    several = facts.updates_per_step is not None and facts.updates_per_step > 1
    causes = ["the learning rate is too high", "the sampler is not the policy (see sampler_mismatch)"]
    causes.insert(0 if several else 2, "too many updates are made on each batch")
    return [
        Finding(
            check="ratio_extremes",
            kind=kind,
            severity=severity,
            first_step=min(series.steps[0] for series in (largest, clamped, *sides) if series.steps),
            last_step=history.step,
            summary=summary,
            evidence=evidence,
            causes=tuple(causes),
            remedies=(
                "lower training.updates_per_batch or training.mini_batches",
                "lower training.learning_rate",
                "use more prompts per step",
            ),
        )
    ]
