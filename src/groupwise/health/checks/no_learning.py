"""The reward does not rise."""

from __future__ import annotations

import math

from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.health.trend import trend
from groupwise.records import Finding, Severity


def no_learning(
    history: History,
    facts: Facts,
    *,
    window: int = 100,
    solved: float = 0.9,
    small: float = 0.25,
    still_kl: float = 1e-4,
) -> list[Finding]:
    """The reward is where it was at the start after many steps, with the likeliest cause.

    Judges by `reward/mean` against its own noise, and looks for the cause in this order: no update was made; most
    groups are dead; the KL coefficient is large; the policy hardly moves, so the rate is too low; most responses are
    cut off; sampler and trainer differ; else the reward itself may hold nothing that can be learned.

    Args:
        history: the metrics.
        facts: of the run, for the clip's width.
        window: steps without a rise before anything is said; published curves show one within 100.
        solved: share of right rollouts from which on there is nothing left to learn.
        small: a rise of fewer of the batch's stds than this, from the first to the last tenth of the run, is none.
        still_kl: nats per token below which the policy has hardly moved.

    Edge case: a plateau after a rise is not meant: the comparison is with the start of the run.
    """
    reward = history.all("reward/mean")
    count = len(reward)
    if count < window or history.now("reward/mean") is None:
        return []
    if history.last("reward/pass_fraction", 10).mean >= solved:
        return []
    tenth = max(count // 10, 5)
    before, after = history.first("reward/mean", tenth).mean, history.last("reward/mean", tenth).mean
    spread = history.all("reward/std").mean
    rise = after - before
    if rise > small * (spread if spread > 0 else abs(before)) or trend(reward.values).rises:
        return []
    kind, name, value = _cause(history, facts, still_kl)
    evidence = {"reward/mean": after, "reward of the first steps": before}
    if name:
        evidence[name] = value
    order = [kind, *(other for other in _ADVICE if other != kind)]
    return [
        Finding(
            check="no_learning",
            kind=kind,
            severity=Severity.WARNING,
            first_step=reward.steps[0],
            last_step=history.step,
            summary=f"after {count} steps the reward is {after:.3g}, and was {before:.3g} at the start",
            evidence=evidence,
            causes=tuple(_ADVICE[each][0] for each in order[:3]),
            remedies=tuple(_ADVICE[each][1] for each in order[:3]),
        )
    ]


_ADVICE = {
    "no_gradient": ("no gradient reached the weights", "see why rewards are absent or equal"),
    "dead_groups": ("most groups have equal rewards", "see dead_groups"),
    "large_beta": ("the KL coefficient outweighs the reward", "lower objective.kl.beta tenfold"),
    "low_rate": ("the learning rate is too low", "raise training.learning_rate threefold"),
    "truncation": ("most responses are cut off before their answer", "raise rollout.max_new_tokens"),
    "mismatch": ("the sampler is not the policy that is trained", "see sampler_mismatch"),
    "reward": (
        "the reward is mostly noise, or asks for what the model cannot do",
        "run groupwise check-reward, and read rollouts of high and low reward",
    ),
}


def _cause(history: History, facts: Facts, still_kl: float) -> tuple[str, str, float]:
    """The likeliest cause, and the metric with its value that tells."""

    def recent(name: str) -> float:
        return history.last(name, 20).mean

    norm, dead, beta, kl = map(
        recent, ("grad/norm", "reward/zero_spread_fraction", "kl/beta", "kl/token_mean")
    )
    cut, gap = recent("length/truncated_fraction"), recent("sampler/gap_abs_mean")
    # A run of ours logs the norm with every update; the log of another trainer may do without.
    never = facts.rollouts is not None and not history.all("grad/norm")
    width = facts.clip_width if facts.clip_width is not None else 0.5
    for kind, found, name, value in (
        ("no_gradient", norm == 0 or never, "grad/norm", norm),
        ("dead_groups", dead >= 0.7, "reward/zero_spread_fraction", dead),
        ("large_beta", beta > 0.1, "kl/beta", beta),
        ("low_rate", abs(kl) < still_kl, "kl/token_mean", kl),
        ("truncation", cut > 0.5, "length/truncated_fraction", cut),
        ("mismatch", gap > width / 10, "sampler/gap_abs_mean", gap),
    ):
        if found:
            return kind, name if math.isfinite(value) else "", value
    return "reward", "", math.nan
