"""What completions that no right answer stands behind are paid, against what a right answer gets."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.rewards.examine import Asked, Measured, Tried
from groupwise.rewards.made_up import LISTS

PAID = 0.2
"""Share of the way from a wrong answer's reward to the right one's from which on a completion counts as paid.

A model that is right in a share p of its tries gets that share of the way by answering, on average; a completion that
surely gets more is what it learns in place of answers. At a fifth that concerns models that are right less often than
once in five tries, and many a run starts with one. The tenth or so that rewards give for form alone stays below, and
form that wrong answers have too counts for nothing, since the way begins at what they get.
"""
_NEIGHBOURS = ("off by one", "letters changed")
"""Wrong answers as near as those in the lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pay:
    """What one completion got, on a row on which right answers get more than wrong ones."""

    value: float | None
    """Its reward."""
    wrong: float
    """What it is compared with: the mean of the row's wrong answers; for a list, one wrong answer as near as those
    in it; for a prompt that leaks the answer, the same completion without the leak."""
    right: float
    """The reward of the row's right answer."""
    share: float | None
    """How far `value` is from `wrong` (0) to `right` (1), for a leak in units of the way from wrong to right; None
    without a reward."""

    @property
    def paid(self) -> bool:
        """True from `PAID` on."""
        return self.share is not None and self.share >= PAID - 1e-9


def by_group(asked: Sequence[Asked]) -> dict[int, list[float]]:
    """The rewards of each row, for rows with any."""
    groups: dict[int, list[float]] = {}
    for each in asked:
        if each.value is not None:
            groups.setdefault(each.item.group, []).append(each.value)
    return groups


def pays(measured: Measured, tried: Tried) -> list[Pay]:
    """What a probe that deserves nothing got, row by row; rows that cannot say are left out, other probes have none."""
    aim = tried.probe.aim
    if aim not in ("nothing", "leak"):
        return []
    rights, wrongs = by_group(measured.of_kind("right")), by_group(measured.of_kind("wrong"))
    near = by_group([each for each in measured.of_kind("wrong") if each.item.name in _NEIGHBOURS])
    before = by_group([a for t in measured.tried if t.probe.name == "unknown" for a in t.asked])
    found = []
    for each in tried.asked:
        group, value = each.item.group, each.value
        if group not in rights or group not in wrongs:
            continue
        right, start = rights[group][0], statistics.fmean(wrongs[group])
        way = right - start
        if tried.probe.name in LISTS:
            start = near.get(group, [start])[0]
            way = right - start
        elif aim == "leak":
            start = before.get(group, [start])[0]
        if way > 0:
            share = None if value is None else (value - start) / way
            found.append(Pay(value=value, wrong=start, right=right, share=share))
    return found


def worth(measured: Measured, tried: Tried) -> float | None:
    """The mean share of the way over the rows of a probe that deserves nothing; None where that cannot be said."""
    shares = [pay.share for pay in pays(measured, tried) if pay.share is not None]
    return statistics.fmean(shares) if shares else None


def paid(measured: Measured, tried: Tried) -> float | None:
    """The share of rows on which a probe that deserves nothing is paid; None where that cannot be said.

    Paid is at least `PAID` of the way from a wrong answer's reward to the right one's. Without right answers it is the
    most that any plain reply to the row got, where that is more than the least.
    """
    if tried.probe.aim not in ("nothing", "leak"):
        return None
    said = [pay.paid for pay in pays(measured, tried)]
    replies = by_group(measured.of_kind("reply"))
    for each in tried.asked:
        got = replies.get(each.item.group, [])
        if got and max(got) > min(got):
            said.append(each.value is not None and each.value >= max(got))
    return sum(said) / len(said) if said else None
