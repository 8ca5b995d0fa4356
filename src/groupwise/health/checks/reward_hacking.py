"""The reward rises while what it stands for does not."""

from __future__ import annotations

from groupwise.health.facts import Facts
from groupwise.health.history import History, Series
from groupwise.health.trend import Trend, trend
from groupwise.records import Finding, Severity


def reward_hacking(
    history: History,
    facts: Facts,
    *,
    rise: float = 0.1,
    fall: float = 0.1,
    part_fall: float = 0.25,
    alike: float = 0.3,
    window: int = 50,
) -> list[Finding]:
    """Training reward up while held-out pass@1, a watched reward, or one of its own parts falls or stands.

    Judges by `reward/mean` over the window, and beside it by `eval/pass@1`; by the mean of each reward that is only
    watched (weight 0), which measures what it was meant to without being trained on; and by each part of the reward, of
    which one may be given up for another. What an optimised proxy does to its goal: Gao et al. 2022, arXiv 2210.10760.

    Args:
        history: the metrics.
        facts: of the run, for the rollouts that a mean is of.
        rise: of the reward over the window, as a share of where it began, that counts.
        fall: of pass@1, absolute, or of a watched reward, as a share of where it began, that counts.
        part_fall: of a part of the reward, as a share of where it began, that counts; larger, since parts trade off. Of
            a part that began at or below 0, a penalty, as a share of the total's rise where that is more.
        alike: a watched reward that stands counts only where its correlation with the total was at least this at first:
            only then did both measure the same.
        window: steps.

    Edge case: three steps are enough where the fall lies on a line, as it does in logs averaged over many steps; where
    the std of a mean is known, noise is no fall.
    """
    reward = history.last("reward/mean", window)
    course = trend(reward.values, _errors(history, "reward/mean", window, facts))
    if len(reward) < 3 or history.now("reward/mean") is None:
        return []
    findings = _parts(history, facts, course, reward, rise=rise, fall=part_fall, window=window)
    if course.rises and course.change >= rise * max(abs(course.start), 1e-9):
        findings += _held_out(history, course, reward, fall=fall)
        findings += _watched(history, facts, course, reward, fall=fall, alike=alike, window=window)
    return findings


def _held_out(history: History, course: Trend, reward: Series, *, fall: float) -> list[Finding]:
    passed = history.all("eval/pass@1").since(reward.steps[0])
    if len(passed) < 3:
        return []
    before, after = passed.values[0], sum(passed.values[-2:]) / 2
    count = history.last("eval/response_count", 1)
    error = 0.0
    if count.values:  # binomial, of a difference of one measurement and a mean of two
        p = min(max(passed.mean, 0.02), 0.98)
        error = (1.5 * p * (1 - p) / count.values[-1]) ** 0.5
    evidence = {
        "eval/pass@1": after,
        "pass@1 before": before,
        "reward/mean": course.end,
        "reward before": course.start,
    }
    told = f"while the reward rose from {course.start:.3g} to {course.end:.3g}"
    if after - before <= -max(fall, 2 * error):
        summary = f"held-out pass@1 fell from {before:.1%} to {after:.1%} {told}"
        return [_finding(history, "held_out_falls", Severity.CRITICAL, passed.steps[0], summary, evidence)]
    if len(passed) >= 5 and passed.mean > 0 and max(passed.values[1:]) <= before:
        summary = f"held-out pass@1 has not risen above {before:.1%} in {len(passed) - 1} evaluations {told}"
        return [_finding(history, "held_out_stands", Severity.WARNING, passed.steps[0], summary, evidence)]
    return []


def _watched(
    history: History, facts: Facts, course: Trend, reward: Series, *, fall: float, alike: float, window: int
) -> list[Finding]:
    findings = []
    for label in history.labels("reward/part/{label}/correlation"):
        name = f"reward/part/{label}/mean"
        watched = history.last(name, window)
        if len(watched) < 3:
            continue
        own = trend(watched.values, _errors(history, f"reward/part/{label}/mean", window, facts))
        correlation = history.first(f"reward/part/{label}/correlation", 10).mean
        falls = own.falls and -own.change >= fall * max(abs(own.start), 1e-9)
        stands = len(watched) >= 20 and correlation >= alike and own.change <= 0.2 * course.change
        if not falls and not stands:
            continue
        findings.append(
            _finding(
                history,
                f"watched_{'falls' if falls else 'stands'}:{label}",
                Severity.WARNING if correlation >= alike else Severity.INFO,
                watched.steps[0],
                f"the watched reward {label} went from {own.start:.3g} to {own.end:.3g} while the reward rose from "
                f"{course.start:.3g} to {course.end:.3g}",
                {name: own.end, "before": own.start, "reward/mean": course.end, "reward before": course.start}
                | {"correlation at first": correlation},
            )
        )
    return findings


def _parts(
    history: History, facts: Facts, course: Trend, reward: Series, *, rise: float, fall: float, window: int
) -> list[Finding]:
    """A part of the reward that falls while the total is higher at the end than at the start of the window."""
    watched = set(history.labels("reward/part/{label}/correlation"))
    labels = [label for label in history.labels("reward/part/{label}/mean") if label not in watched]
    higher = reward.values[-1] - reward.values[0] >= rise * max(abs(reward.values[0]), 1e-9)
    if len(labels) < 2 or course.change <= 0 or not higher:
        return []
    trends: dict[str, Trend] = {}
    for label in labels:
        part = history.last(f"reward/part/{label}/mean", window)
        trends[label] = trend(part.values, _errors(history, f"reward/part/{label}/mean", window, facts))
    gaining = max(trends, key=lambda label: trends[label].change)
    return [
        _finding(
            history,
            f"parts:{label}",
            Severity.WARNING,
            reward.steps[0],
            f"the reward {label} fell from {own.start:.3g} to {own.end:.3g} while the total rose from "
            f"{course.start:.3g} to {course.end:.3g}, mostly by {gaining}",
            {f"reward/part/{label}/mean": own.end, "before": own.start, "reward/mean": course.end}
            | {"reward before": course.start, f"reward/part/{gaining}/mean": trends[gaining].end},
        )
        for label, own in trends.items()
        if own.falls and -own.change >= fall * _scale(own, course)
    ]


def _scale(own: Trend, course: Trend) -> float:
    """What the fall of a part is a share of: where it began; of a penalty, the rise of the total where that is more.

    A penalty that hardly ever applies begins near 0, which is its best value, so that every fall is many times that.
    """
    return own.start if own.start > 0 else max(-own.start, course.change, 1e-9)


def _errors(history: History, name: str, window: int, facts: Facts) -> list[float] | None:
    """Standard errors of a mean over the rollouts of each step; None where std or count is not known.

    Rollouts of a prompt are alike, so that a step counts as many as it has prompts.
    """
    means = history.last(name, window)
    stds = history.last(f"{name.removesuffix('mean')}std", window)
    if means.steps != stds.steps or facts.rollouts is None or facts.group_size is None:
        return None
    prompts = max(facts.rollouts / facts.group_size, 1.0)
    return [std / prompts**0.5 for std in stds.values]


def _finding(
    history: History, kind: str, severity: Severity, first: int, summary: str, evidence: dict[str, float]
) -> Finding:
    return Finding(
        check="reward_hacking",
        kind=kind,
        severity=severity,
        first_step=first,
        last_step=history.step,
        summary=summary,
        evidence=evidence,
        causes=(
            "the reward can be had without what it stands for, and the policy has found out how",
            "one part of the reward outweighs the others",
            "the policy has learned the training prompts by heart",
        ),
        remedies=(
            "read the rollouts of the highest reward",
            "run groupwise check-reward on the run's rollouts and close the hole",
            "gate the part that is gained on the one that is lost (rewards.gate), or change their weights",
            "raise objective.kl.beta",
            "go back to the checkpoint of the best held-out value",
        ),
    )
