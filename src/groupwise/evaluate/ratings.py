"""What people's ratings say: means, agreement among raters, and which model is preferred."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from groupwise.evaluate.intervals import Estimate, bootstrap_interval, share_interval

Level = Literal["nominal", "ordinal", "interval"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """One response with what every rater gave it."""

    model: str
    """Whose response it is."""
    prompt: str
    """Id of what it answers."""
    ratings: Mapping[str, int]
    """By rater; whoever left it out is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """How often one model's response is rated above another's."""

    model: str
    """The one that is rated above."""
    other: str
    """The one below."""
    share: Estimate
    """Mean over prompts of the share of ratings by which it is above, a tie counting one half."""
    prompts: int
    """Prompts on which a rater rated both."""


def means(items: Sequence[Rated]) -> dict[str, Estimate]:
    """Each model's mean rating with its bootstrap interval over responses, the best model first.

    A response counts once, with the mean of its ratings, so that one that many people rated weighs no more.

    Args:
        items: those without a rating are left out.
    """
    by_model: dict[str, list[float]] = {}
    for item in items:
        if item.ratings:
            by_model.setdefault(item.model, []).append(sum(item.ratings.values()) / len(item.ratings))
    found = {model: bootstrap_interval(values) for model, values in by_model.items()}
    return dict(sorted(found.items(), key=lambda pair: -pair[1].value))


def preferences(items: Sequence[Rated]) -> list[Preference]:
    """For each pair of models, how often the first is rated above the second by the same rater on the same prompt.

    Args:
        items: any; pairs of models without a prompt that a rater rated for both are left out.
    """
    models = list(dict.fromkeys(item.model for item in items))
    by_prompt: dict[str, dict[str, list[Rated]]] = {}
    for item in items:
        by_prompt.setdefault(item.prompt, {}).setdefault(item.model, []).append(item)
    found = []
    for model, other in itertools.combinations(models, 2):
        shares = []
        for of_model in by_prompt.values():
            wins = [
                _above(one.ratings[rater], two.ratings[rater])
                for one in of_model.get(model, [])
                for two in of_model.get(other, [])
                for rater in one.ratings.keys() & two.ratings.keys()
            ]
            if wins:
                shares.append(sum(wins) / len(wins))
        if shares:
            share = share_interval(shares)
            found.append(Preference(model=model, other=other, share=share, prompts=len(shares)))
    return found


def _above(one: int, two: int) -> float:
    return 0.5 if one == two else float(one > two)


def krippendorff_alpha(ratings: Sequence[Sequence[int]], level: Level = "ordinal") -> float:
    """Krippendorff's alpha: 1 - observed / expected disagreement. 1 is agreement, 0 what chance would give.

    Krippendorff 2011, "Computing Krippendorff's alpha-reliability" (University of Pennsylvania), with any number of
    raters and missing values. Each unit of m values gives its ordered pairs of values the weight 1 / (m - 1); over all
    pairs the mean squared difference is the observed disagreement, and over pairs of any two of the n values the
    expected one. The squared difference of c and k is: nominal, 1 where they differ; interval, (c - k)^2; ordinal, the
    square of how many values lie from c to k, half of those at c and k themselves.

    Edge case: NaN where no unit has two values, or where all values are equal, so that chance cannot disagree.

    Args:
        ratings: for each unit the values that it was given; units with fewer than two do not count.
        level: what a difference is.
    """
    units = [unit for unit in ratings if len(unit) > 1]
    counts = Counter(value for unit in units for value in unit)
    total = counts.total()
    if len(counts) < 2:
        return math.nan
    observed = expected = 0.0
    for unit in units:
        own = Counter(unit)
        for c, k in itertools.permutations(own, 2):
            observed += own[c] * own[k] / (len(unit) - 1) * _squared(c, k, counts, level)
    for c, k in itertools.permutations(counts, 2):
        expected += counts[c] * counts[k] / (total - 1) * _squared(c, k, counts, level)
    return 1 - observed / expected


def _squared(c: int, k: int, counts: Mapping[int, int], level: Level) -> float:
    if level == "nominal":
        return float(c != k)
    if level == "interval":
        return float((c - k) ** 2)
    low, high = min(c, k), max(c, k)
    between = sum(count for value, count in counts.items() if low <= value <= high)
    return (between - (counts[c] + counts[k]) / 2) ** 2
