"""Metrics of a run as series of points, thinned so that a long run fits and no spike is lost."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.records.metrics_file import METRICS, spelled

MOST_POINTS = 1000
"""Points of one series. Beyond it steps are joined, and of each bunch the smallest and the largest value stay."""


def curves(lines: Sequence[Mapping[str, float]], *, points: int = MOST_POINTS) -> dict[str, Any]:
    """Every metric of a run.

    Args:
        lines: of metrics.jsonl, each with its `step`.
        points: the most of one series.

    Returns:
        `steps`: shared by all series without `x`; `series`: by name, values `y` with None where the metric is absent,
        and steps of its own `x` where that is shorter; `thinned`: True where points were left out; `about`: what each
        name means.
    """
    steps = [int(line["step"]) for line in lines]
    names = sorted({name for line in lines for name in line if name != "step"})
    series: dict[str, Any] = {}
    thinned = False
    for name in names:
        places = [i for i, line in enumerate(lines) if name in line]
        kept = _thinned([lines[i][name] for i in places], points)
        thinned |= len(kept) < len(places)
        chosen = [places[k] for k in kept]
        if len(chosen) == len(places) and 2 * len(places) > len(lines):
            series[name] = {"y": [_short(name, line[name]) if name in line else None for line in lines]}
        else:
            series[name] = {
                "x": [steps[i] for i in chosen],
                "y": [_short(name, lines[i][name]) for i in chosen],
            }
    return {"steps": steps, "series": series, "thinned": thinned, "about": _about(names)}


def _thinned(values: Sequence[float], points: int) -> list[int]:
    """Which values stay: all, or of each bunch the smallest, the largest and the first that is not finite."""
    if len(values) <= points:
        return list(range(len(values)))
    bunches = max(1, points // 2)
    kept: set[int] = {0, len(values) - 1}
    for b in range(bunches):
        bunch = range(b * len(values) // bunches, (b + 1) * len(values) // bunches)
        finite = [i for i in bunch if math.isfinite(values[i])]
        kept.update([i for i in bunch if not math.isfinite(values[i])][:1])
        if finite:
            kept |= {min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)}
    return sorted(kept)


def _short(name: str, value: float) -> float | str:
    return spelled(name, float(f"{value:.6g}"))


def _about(names: Sequence[str]) -> dict[str, str]:
    patterns = [
        (re.compile(re.sub(r"\\{\w+\\}", ".+", re.escape(name))), text) for name, text in METRICS.items()
    ]
    found = {name: next((text for p, text in patterns if p.fullmatch(name)), None) for name in names}
    return {name: text for name, text in found.items() if text is not None}
