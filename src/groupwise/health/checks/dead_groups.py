"""Groups whose rewards are all equal, so that they teach nothing."""

from __future__ import annotations

import math

from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.records import Finding, Severity


def dead_groups(
    history: History,
    facts: Facts,
    *,
    limit: float = 0.5,
    critical_limit: float = 0.9,
    low_spread_limit: float = 0.5,
    wanted: float = 0.2,
    first: int = 5,
    window: int = 10,
) -> list[Finding]:
    """A large share of groups without spread, told apart by what they are: all right, all wrong, or equal in between.

    Judges by `reward/zero_spread_fraction`, and by `reward/all_right_fraction` and `reward/all_wrong_fraction` where
    the run has them. DAPO (arXiv 2503.14476, section 3.2) draws such groups anew; guides to GRPO ask for a std of 0.1
    in the group. With a share p of right rollouts, a group of G has equal rewards with probability p^G + (1 - p)^G if
    all prompts are alike, which gives the group size that would do.

    Args:
        history: the metrics.
        facts: of the run, for the group size.
        limit: share of groups without spread that is a warning.
        critical_limit: share that is critical.
        low_spread_limit: share of groups with a std below 0.1 that is an info where the others do not apply.
        wanted: share of dead groups that the proposed group size aims at.
        first: steps that make the start.
        window: steps averaged over.

    Edge case: before half the window has passed there is no finding. A finding is an info where nine in ten
    rollouts are right, and where groups are all right that were not at the start: then the task is being solved and the
    run is not ill.
    """
    dead = history.last("reward/zero_spread_fraction", window)
    if len(dead) < window / 2 or history.now("reward/zero_spread_fraction") is None:
        return []
    known = {name: history.last(name, window).mean for name in _KNOWN}
    right, wrong, passed, low = known.values()
    evidence = {"reward/zero_spread_fraction": dead.mean, "limit": limit}
    evidence |= {name: value for name, value in known.items() if math.isfinite(value)}
    if dead.mean < limit:
        if low < low_spread_limit or math.isnan(low):
            return []
        kind, severity = "low_spread", Severity.INFO
        summary = f"{low:.0%} of the groups have rewards with a std below 0.1"
    else:
        shares = {"all_right": right, "all_wrong": wrong, "equal": dead.mean - right - wrong}
        kind = "equal" if math.isnan(right) else max(shares, key=lambda name: shares[name])
        severity = Severity.CRITICAL if dead.mean >= critical_limit else Severity.WARNING
        learned = kind == "all_right" and history.first("reward/zero_spread_fraction", first).mean < limit
        if passed >= 0.9 or learned:
            severity = Severity.INFO
        summary = f"{dead.mean:.0%} of the groups have equal rewards, most {_KINDS[kind]}"
    size = _group_size(passed, wanted) if kind in ("all_right", "all_wrong") else None
    remedies = list(_REMEDIES[kind])
    if size is not None and facts.group_size is not None and facts.group_size < size <= 64:
        share = passed**size + (1 - passed) ** size
        evidence["group size to try"] = size
        remedies.insert(
            0,
            f"set rollout.group_size to {size}: with {passed:.0%} right, p^G + (1 - p)^G is {share:.0%} there if all "
            "prompts are alike",
        )
    return [
        Finding(
            check="dead_groups",
            kind=kind,
            severity=severity,
            first_step=dead.steps[0],
            last_step=history.step,
            summary=summary,
            evidence=evidence,
            causes=_CAUSES[kind],
            remedies=tuple(remedies),
        )
    ]


_KNOWN = (
    "reward/all_right_fraction",
    "reward/all_wrong_fraction",
    "reward/pass_fraction",
    "reward/low_spread_fraction",
)
_KINDS = {
    "all_right": "all right",
    "all_wrong": "all wrong",
    "equal": "at one value in between or of unknown kind",
}
_CAUSES = {
    "all_right": ("the prompts are too easy for the policy", "the reward is given for too little"),
    "all_wrong": (
        "the prompts are too hard for the policy",
        "responses are cut off before the answer",
        "the reward does not find the answers (try groupwise check-reward)",
    ),
    "equal": (
        "the reward has few values, such as format alone",
        "the temperature is so low that the rollouts of a group are the same",
        "the reward is constant",
    ),
    "low_spread": ("the reward changes little between responses", "its scale is small"),
}
_REMEDIES = {
    "all_right": ("take harder prompts, or leave out those that are solved", "raise rollout.temperature"),
    "all_wrong": (
        "read some rollouts: is the answer there and not found?",
        "take easier prompts, or mix some in",
        "add a reward that gives partial credit",
        "fine-tune on examples first",
    ),
    "equal": (
        "raise rollout.temperature towards 1",
        "give a reward with more than two values",
        "raise rollout.group_size",
    ),
    "low_spread": ("nothing need be done where advantages are divided by the std (group_zscore)",),
}


def _group_size(passed: float, wanted: float) -> int | None:
    """The smallest power of two with p^G + (1 - p)^G at most `wanted`; None where there is none up to 1,024."""
    sizes = (2**k for k in range(1, 11))
    return next((g for g in sizes if passed**g + (1 - passed) ** g <= wanted), None)
