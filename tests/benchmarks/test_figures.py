"""What is computed from measurements, on numbers worked by hand."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from benchmarks.cases import CASES, Case, by_place
from benchmarks.facts import median
from benchmarks.figures import (
    exponent,
    held_out,
    line,
    needed_flops,
    outside_model,
    pairs_summary,
    scaling_lines,
)


def test_needed_flops_of_the_short_case() -> None:
    # Unique: 8 * 46 + 8 * 8 * 32 = 2,416 tokens; completions: 2,048. 8 * 10 * 2,416 + 8 * 3 * 2,048 = 242,432.
    assert needed_flops(asdict(CASES["short"]), {"body": 10, "head": 3}) == 242_432
    assert (CASES["short"].unique_tokens, CASES["long"].unique_tokens) == (2416, 4 * 512 + 4096)


def test_fits() -> None:
    assert line([1, 2, 3], [5, 7, 9]) == pytest.approx((3.0, 2.0))
    # Means 1 and 2: slope (-1 * -2 + 0 * -1 + 1 * 3) / 2 = 2.5, intercept 2 - 2.5.
    assert line([0, 1, 2], [0, 1, 5]) == pytest.approx((-0.5, 2.5))
    assert exponent([1, 10, 100], [3, 300, 30_000]) == pytest.approx(2.0)
    for x, y in (([1], [1]), ([2, 2], [1, 3]), ([1, 2], [1, 2, 3])):
        with pytest.raises(ValueError, match="two points at different places"):
            line(x, y)


def test_median() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5


def test_rewards_by_place_leave_no_rollout_without_advantage() -> None:
    rewards = by_place(4)(completions=["x"] * 8)
    assert rewards == [0, 1, 2, 3, 0, 1, 2, 3]
    assert 1.5 not in rewards


def a_pair(ours: float, trl: float, *, rate: float) -> dict[str, Any]:
    """Steps of so many seconds beside products of so many GFLOP/s."""
    gemm = {"median": rate, "best": 2 * rate, "count": 3}
    return {
        "date": "2026-01-02 03:04",
        "load": [1.0, 1.0],
        "known": {
            "ours": {"weights": {"body": 10**8, "head": 0}, "versions": {"torch": "2"}},
            "trl": {"versions": {"trl": "1.16"}},
        },
        "gemm": {"before": gemm, "after": gemm},
        "ours": {"seconds": ours, "phases": {"forward": ours, "rest": 0.0}, "peak_memory_mb": 100.0 * ours},
        "trl": {"seconds": trl, "phases": {"generate": trl, "rest": 0.0}, "peak_memory_mb": 4000.0},
        "executed_flops": 5e12,
    }


def a_step() -> dict[str, Any]:
    case = Case(prompts=1, prompt_tokens=50, group=2, new_tokens=100)
    return {
        "identity": {"case": asdict(case)},
        "runs": [a_pair(10, 40, rate=40), a_pair(2, 10, rate=100), a_pair(4, 12, rate=100)],
    }


def test_a_comparison_is_the_median_of_ratios() -> None:
    found = pairs_summary(a_step())
    assert found["ratios"] == [4, 5, 3]
    assert found["ratio"] == 4  # the ratio of medians would be 12 / 4 = 3
    # 8 * 1e8 * 250 = 2e11 FLOP; at 4e10, 1e11, 1e11 a second 5, 2, 2 s of 10, 2, 4: 0.5, 1.0, 0.5.
    assert found["needed_flops"] == 2e11
    assert found["roofline"] == pytest.approx(0.5)
    assert found["roofline_of_best_gemm"] == pytest.approx(0.25)
    assert found["memory_mb"] == {"ours": 1000.0, "trl": 4000.0}
    assert found["memory_ratio"] == 0.25
    assert found["phases"]["ours"] == {"forward": 4, "rest": 0.0}


def seed_runs(seed: int, ours: float, trl: list[float]) -> list[dict[str, Any]]:
    def side(name: str, passed: float, seconds: list[float]) -> dict[str, Any]:
        steps = [{"seconds": s, "reward": 0.0} for s in seconds]
        return {"seed": seed, "side": name, "pass@1": passed, "steps": steps, "peak_memory_mb": 1024.0}

    return [
        {"seed": seed, "side": "untrained", "pass@1": 0.1},
        side("ours", 0.6, [9.0, *[ours] * 20, 100.0]),
        side("trl", 0.2, trl),
    ]


def test_a_real_run_compares_warm_steps() -> None:
    runs = [*seed_runs(0, 2.0, [50.0, 10.0, 14.0]), *seed_runs(1, 2.0, [50.0]), *seed_runs(2, 1.0, [1.0])[:2]]
    first, second = held_out(runs)  # the third has no run of TRL's yet
    assert first["step"] == {"ours": 2.0, "trl": 12.0}  # steps 2 to 21, and 2 to 3
    assert first["ratio"] == 6.0
    assert (first["cold"], second["cold"]) == (False, True)
    assert second["ratio"] == 25.0
    assert (first["before"], first["ours"], first["trl"]) == (0.1, 0.6, 0.2)


def test_shares_outside_the_model() -> None:
    step = {"seconds": 10.0, "model: generate": 4.0, "model: update": 5.5, "write": 0.2}
    found = outside_model([step | {"metrics": {"time/reward_seconds": 0.1}}] * 2)
    assert found == pytest.approx(
        {"seconds": 10.0, "outside": 0.05, "rewards": 0.01, "records and logging": 0.02, "rest": 0.02}
    )


def a_point(case: Case, seconds: float) -> dict[str, Any]:
    return {"case": asdict(case), "settings": [], "seconds": [seconds + 1, seconds], "peak_memory_mb": 500.0}


def test_slopes_are_said() -> None:
    cases = {
        g: [Case(prompts=2, prompt_tokens=n, group=g, new_tokens=32) for n in (64, 128, 256)] for g in (4, 16)
    }
    groups = [Case(prompts=2, prompt_tokens=128, group=g, new_tokens=32) for g in (8, 32)]
    runs = [a_point(case, 1.0 + 0.01 * case.prompt_tokens) for case in cases[4]]
    runs += [a_point(case, 5.0 + 0.012 * case.prompt_tokens) for case in cases[16]]
    runs += [a_point(case, 0.5 * case.group) for case in groups]
    sweeps = {"group": ((), groups), "prompt-4": ((), cases[4]), "prompt-16": ((), cases[16])}
    said = scaling_lines(runs, sweeps)
    assert said[0].startswith(
        "group: 0.00 s + 0.5000 s per rollout of each of 2 prompts; time grows as its power 1.00"
    )
    assert said[1] == "group: seconds per rollout by rollouts per prompt: 8: 0.250 s, 32: 0.250 s"
    assert said[2].startswith("prompt-4: 1.00 s + 0.0100 s per token of each of 2 prompts")
    assert said[4].startswith("a prompt token costs 1.20 times as much with 16 rollouts as with 4")
    assert scaling_lines([], sweeps) == []
