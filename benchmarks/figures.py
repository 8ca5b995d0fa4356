"""Figures made of measurements: pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from benchmarks.facts import median


def needed_flops(case: dict[str, int], weights: dict[str, int]) -> float:
    """FLOPs of the unique tokens of a step: 2 per weight to sample with, 6 to train (2 forward, 4 backward).

    Body weights times unique tokens (a prompt once per group), head weights times completion tokens; attention and
    everything between the products is left out.
    """
    completion = case["prompts"] * case["group"] * case["new_tokens"]
    unique = case["prompts"] * case["prompt_tokens"] + completion
    return 8.0 * weights["body"] * unique + 8.0 * weights["head"] * completion


def line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Intercept and slope of the straight line with the least squares."""
    n = len(x)
    if n < 2 or len(y) != n or len(set(x)) < 2:
        raise ValueError("a line needs two points at different places")
    mean_x, mean_y = sum(x) / n, sum(y) / n
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum(
        (a - mean_x) ** 2 for a in x
    )
    return mean_y - slope * mean_x, slope


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """p of y = c x^p, fitted on logarithms: 1 grows in proportion, 0 does not grow."""
    return line([math.log(a) for a in x], [math.log(b) for b in y])[1]


def pairs_summary(held: dict[str, Any]) -> dict[str, Any]:
    """Medians over the pairs of one case: of ratios that were taken pair by pair, never a ratio of medians."""
    runs, case = held["runs"], held["identity"]["case"]
    weights = runs[0]["known"]["ours"]["weights"]
    flops = needed_flops(case, weights)
    rates = [
        median([r["gemm"]["before"]["median"], r["gemm"]["after"]["median"]]) * 1e9 for r in runs
    ]
    shares = [flops / rate / r["ours"]["seconds"] for rate, r in zip(rates, runs, strict=True)]
    best = [max(r["gemm"][k]["best"] for k in ("before", "after")) * 1e9 for r in runs]
    ours, trl = ([r[name]["peak_memory_mb"] for r in runs] for name in ("ours", "trl"))
    return {
        "pairs": len(runs),
        "seconds": {name: median([r[name]["seconds"] for r in runs]) for name in ("ours", "trl")},
        "ratios": [r["trl"]["seconds"] / r["ours"]["seconds"] for r in runs],
        "ratio": median([r["trl"]["seconds"] / r["ours"]["seconds"] for r in runs]),
        "phases": {name: _phases([r[name]["phases"] for r in runs]) for name in ("ours", "trl")},
        "memory_mb": {"ours": max(ours), "trl": max(trl)},
        "memory_ratio": max(ours) / max(trl),
        "needed_flops": flops,
        "executed_flops": runs[-1]["executed_flops"],
        "gemm_gflops": median(rates) / 1e9,
        "roofline": median(shares),
        "roofline_of_best_gemm": median(
            [flops / rate / r["ours"]["seconds"] for rate, r in zip(best, runs, strict=True)]
        ),
    }


def _phases(found: Sequence[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for phases in found for name in phases)
    return {name: median([phases.get(name, 0.0) for phases in found]) for name in names}
