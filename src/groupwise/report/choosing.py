"""Which groups go into a report, down to their tokens: decided by their outlines and a budget, never by chance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from groupwise.records.rollout_outline import GroupOutline

Place = tuple[int, int]
"""Step, and number of the group in it."""

_TOKEN_BYTES = 20
_ROLLOUT_BYTES = 350
MOST_TOKENS = 2048
"""Tokens of one rollout that are shown."""


def choose(
    outlines: Mapping[int, Sequence[GroupOutline]], *, first: Iterable[int], budget_bytes: int
) -> list[Place]:
    """The groups to be shown with their tokens, the most telling first, as many as the budget could hold at best.

    Round after round each step gives one more group: its widest spread, its highest mean, its lowest, its longest,
    then the others. Steps come in this order: the last, the first, those given, then ever finer parts of the run.

    Args:
        outlines: groups by step.
        first: steps in which something happened.
        budget_bytes: of the page.
    """
    order = in_turn(sorted(outlines), first)
    ranked = {step: rank(outlines[step]) for step in order}
    chosen: list[Place] = []
    left = budget_bytes
    for turn in range(max((len(groups) for groups in ranked.values()), default=0)):
        for step in order:
            if turn < len(ranked[step]):
                group = ranked[step][turn]
                size = estimate(group)
                if size <= left:
                    chosen.append((step, group.group))
                    left -= size
    return chosen


def rank(groups: Sequence[GroupOutline]) -> list[GroupOutline]:
    """The groups of a step, the most telling first; equal ones by their number."""
    if not groups:
        return []
    heads = [
        max(groups, key=lambda g: (_or_least(g.spread), -g.group)),
        max(groups, key=lambda g: (_or_least(g.mean), -g.group)),
        min(groups, key=lambda g: (math.inf if math.isnan(g.mean) else g.mean, g.group)),
        max(groups, key=lambda g: (max(g.lengths_G, default=0), -g.group)),
    ]
    return list({group.group: group for group in (*heads, *groups)}.values())


def in_turn(steps: Sequence[int], first: Iterable[int]) -> list[int]:
    """Steps in the order in which they are drawn on: ends, those given, then by halving what lies between."""
    if not steps:
        return []
    known = set(steps)
    order = [steps[-1], steps[0], *(step for step in first if step in known)]
    spans = [(0, len(steps) - 1)]
    while spans:
        wider: list[tuple[int, int]] = []
        for low, high in spans:
            if high - low > 1:
                middle = (low + high) // 2
                order.append(steps[middle])
                wider += [(low, middle), (middle, high)]
        spans = wider
    return list(dict.fromkeys(order))


def estimate(group: GroupOutline) -> int:
    """How many bytes a group takes in the page at the least, or nearly so."""
    tokens = sum(min(length, MOST_TOKENS) for length in group.lengths_G)
    texts = sum(len(text.encode("utf-8", "replace")) for text in group.responses_G)
    return tokens * _TOKEN_BYTES + texts + _ROLLOUT_BYTES * len(group.lengths_G) + 2 * len(group.prompt) + 500


def _or_least(value: float) -> float:
    return -math.inf if math.isnan(value) else value
