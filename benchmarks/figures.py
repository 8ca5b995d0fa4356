"""Figures made of measurements: pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
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
    rates = [median([r["gemm"]["before"]["median"], r["gemm"]["after"]["median"]]) * 1e9 for r in runs]
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


def outside_model(steps: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Shares of the steps' seconds outside the model's work: all of it, and its parts."""
    whole = sum(step["seconds"] for step in steps)
    model = sum(value for step in steps for name, value in step.items() if name.startswith("model: "))
    write = sum(step["write"] for step in steps)
    reward = sum(step["metrics"]["time/reward_seconds"] for step in steps)
    return {
        "seconds": whole / len(steps),
        "outside": (whole - model) / whole,
        "rewards": reward / whole,
        "records and logging": write / whole,
        "rest": (whole - model - write - reward) / whole,
    }


def held_out(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per seed with both sides: accuracy before and after, and seconds of a warm step.

    Warm steps are 2 to 21 of ours, and as many of those as TRL reached. Where TRL reached none, its first
    stands in, which the entry says.
    """
    found = []
    for seed in dict.fromkeys(run["seed"] for run in runs):
        sides = {run["side"]: run for run in runs if run["seed"] == seed}
        if sides.keys() < {"untrained", "ours", "trl"}:
            continue
        ours, trl = sides["ours"], sides["trl"]
        step = {name: _warm(sides[name]["steps"]) for name in ("ours", "trl")}
        found.append(
            {
                "seed": seed,
                "before": sides["untrained"]["pass@1"],
                "ours": ours["pass@1"],
                "trl": trl["pass@1"],
                "step": step,
                "ratio": step["trl"] / step["ours"],
                "steps": {"ours": len(ours["steps"]), "trl": len(trl["steps"])},
                "memory_mb": {"ours": ours["peak_memory_mb"], "trl": trl["peak_memory_mb"]},
                "cold": len(trl["steps"]) < 2,
            }
        )
    return found


def _warm(steps: Sequence[dict[str, float]]) -> float:
    seconds = [step["seconds"] for step in steps]
    chosen = seconds[1:21] or seconds
    return sum(chosen) / len(chosen)


def points(
    runs: Sequence[dict[str, Any]], settings: Sequence[str], cases: Sequence[Any], axis: str
) -> list[dict[str, float]]:
    """The measured points of a sweep along an axis of the case, in its order; those not measured are left out."""
    found = []
    for case in cases:
        for run in runs:
            if run["settings"] == list(settings) and run["case"] == asdict(case):
                found.append(
                    {
                        "at": run["case"][axis],
                        "rollouts": case.rollouts,
                        "seconds": min(run["seconds"]),
                        "memory_mb": run["peak_memory_mb"],
                    }
                )
    return found


AXES = {
    "group": "group",
    "prompt-4": "prompt_tokens",
    "prompt-16": "prompt_tokens",
    "completion": "new_tokens",
    "batch": "prompts",
    "batch-1024": "prompts",
}
"""What each sweep varies."""


def scaling_lines(runs: Sequence[dict[str, Any]], sweeps: dict[str, Any]) -> list[str]:
    """The fitted slopes as sentences."""
    lines = []
    slopes: dict[str, float] = {}
    for name, (settings, cases) in sweeps.items():
        found = points(runs, settings, cases, AXES[name])
        if len(found) < 2:
            continue
        at, seconds, memory = ([p[k] for p in found] for k in ("at", "seconds", "memory_mb"))
        intercept, slope = line(at, seconds)
        slopes[name] = slope
        lines.append(
            f"{name}: {intercept:.2f} s + {slope:.4f} s per {_UNITS[AXES[name]]}; time grows as its power "
            f"{exponent(at, seconds):.2f}, memory as {exponent(at, memory):.2f}"
        )
        if name == "group":
            each = {int(p["at"]): p["seconds"] / p["rollouts"] for p in found}
            told = ", ".join(f"{g}: {s:.3f} s" for g, s in each.items())
            lines.append(f"group: seconds per rollout by rollouts per prompt: {told}")
    if {"prompt-4", "prompt-16"} <= slopes.keys():
        lines.append(
            f"a prompt token costs {slopes['prompt-16'] / slopes['prompt-4']:.2f} times as much with 16 rollouts "
            "as with 4; computed per rollout it would be 4 times"
        )
    return lines


_UNITS = {
    "group": "rollout of each of 2 prompts",
    "prompt_tokens": "token of each of 2 prompts",
    "new_tokens": "token of each of 8 rollouts",
    "prompts": "prompt with its 8 rollouts",
}
