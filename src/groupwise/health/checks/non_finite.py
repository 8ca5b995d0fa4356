"""NaN or infinity, and where it comes from."""

from __future__ import annotations

import math

from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.records import Finding, Severity


def non_finite(history: History, facts: Facts, *, log_limit: float = 20.0) -> list[Finding]:
    """A metric that is not finite, or an update that was skipped for it, with its likeliest source.

    Judges by all metrics of the step and by `training/skipped_updates`. The sources, in the order in which one leads to
    the next: a reward; a division by a std of 0; an extreme log-prob; a ratio whose logarithm is beyond what exp takes;
    exp in the k3 estimate of the KL; the loss or gradient itself.

    Args:
        history: the metrics.
        facts: of the run; not used.
        log_limit: nats of gap or log-ratio that count as extreme; e^20 is 5e8.

    Edge case: metrics that are absent are no fault; so is a mean of nothing, which is not logged.
    """
    bad = sorted(name for name, value in history.line.items() if not math.isfinite(value))
    skipped = history.now("training/skipped_updates") or 0.0
    if not bad and not skipped:
        return []
    gap = history.now("sampler/gap_abs_max")
    clamped = history.now("ratio/clamped_count") or 0.0
    sources = (
        ("reward", any(n.startswith("reward/") for n in bad)),
        ("zero_std", any(n.startswith("advantage/") for n in bad)),
        ("extreme_logprob", (gap or 0.0) > log_limit or any(n.startswith("sampler/") for n in bad)),
        ("ratio_overflow", clamped > 0 or any(n.startswith("ratio/") for n in bad)),
        ("kl_overflow", any(n.startswith("kl/") for n in bad)),
        ("loss", any(n.startswith(("policy/", "grad/", "dpo/")) for n in bad) or skipped > 0),
        ("other", True),
    )
    kind = next(name for name, found in sources if found)
    evidence = {name: history.line[name] for name in bad[:8]} | {"training/skipped_updates": skipped}
    if gap is not None:
        evidence["sampler/gap_abs_max"] = gap
    evidence["ratio/clamped_count"] = clamped
    what = f"{bad[0]} is {history.line[bad[0]]}" if bad else f"{skipped:.0f} updates were skipped"
    causes, remedies = _ADVICE[kind]
    return [
        Finding(
            check="non_finite",
            kind=kind,
            severity=Severity.CRITICAL,
            first_step=history.step,
            last_step=history.step,
            summary=f"{what}{f', and {len(bad) - 1} more' if len(bad) > 1 else ''}",
            evidence=evidence,
            causes=causes,
            remedies=remedies,
        )
    ]


_ADVICE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "reward": (
        ("a reward gave a value that is not finite, or so large that sums overflow",),
        ("run groupwise check-reward", "bound the reward"),
    ),
    "zero_std": (
        ("advantages were divided by a std of 0 or nearly so",),
        ("give objective.advantage an eps, or use group_mean",),
    ),
    "extreme_logprob": (
        ("a token was sampled that the trainer holds for impossible: the two are different distributions",),
        ("see sampler_mismatch", "use float32 where log-probs are computed"),
    ),
    "ratio_overflow": (
        ("the policy moved so far within a batch that the ratio left what exp can hold",),
        ("lower training.learning_rate", "make fewer updates per batch", "use a ratio per token"),
    ),
    "kl_overflow": (
        ("k3 takes the exp of reference less policy, which overflows where the policy has given a token up",),
        ("set objective.kl.cap_token", "use the estimator k2", "lower training.learning_rate"),
    ),
    "loss": (
        ("weights or activations overflowed, mostly from a learning rate that is too high", "half precision"),
        ("go back to the last checkpoint", "lower training.learning_rate", "set model.precision to float32"),
    ),
    "other": (("a number of the run itself is not finite",), ("look at the metrics named",)),
}
