"""The comparison of sampling recipes: its arithmetic by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks import recipes as benchmark
from groupwise.config import load

ROOT = Path(__file__).parents[2]


def test_curves_by_hand() -> None:
    lines = [
        {"eval/pass@1": 0.0},
        {"tokens/generated": 100.0},
        {"tokens/generated": 100.0, "eval/pass@1": 0.4},
        {"tokens/generated": 200.0, "eval/pass@1": 0.8},
    ]
    curve = benchmark.curve_of(lines)
    assert curve == [(0.0, 0.0), (200.0, 0.4), (400.0, 0.8)]
    assert benchmark.accuracy_at(curve, 300) == pytest.approx(0.6)
    assert benchmark.tokens_to(curve, 0.5) == pytest.approx(250)
    assert benchmark.tokens_to(curve, 0.9) == math.inf
    assert benchmark.area(curve, 400) == pytest.approx(0.4)  # a straight line from 0 to 0.8


def test_the_table_and_its_sentence_by_hand() -> None:
    plain = [(0.0, 0.0), (400.0, 0.8)]
    fast, slow = [(0.0, 0.0), (200.0, 0.8), (400.0, 0.8)], [(0.0, 0.0), (400.0, 0.4)]
    curves = {"plain": [plain, plain], "fast": [fast, fast], "slow": [slow, slow]}
    lines = benchmark.table(curves).splitlines()
    # fast: 0.2 over half of the tokens and 0.8 - that is 0.4 and 0.8 on average, 0.6 in all; there in half the tokens.
    assert lines[1] == (
        "| fast | 0.800 [0.800, 0.800] | 0.600 [0.600, 0.600] | +0.200 [+0.200, +0.200] "
        "| 0.50 [0.50, 0.50] | 0 of 2 | 0.533 [0.533, 0.533] |"
    )
    assert "| -0.200 [-0.200, -0.200] | 1.00 [1.00, 1.00] | 2 of 2 | 0.200" in lines[2]
    assert (
        benchmark.verdict(curves) == "Fast is better than plain sampling; slow is worse than plain sampling."
    )
    mixed = {"plain": [plain, plain], "other": [fast, slow]}
    assert benchmark.verdict(mixed) == "Other is within noise of plain sampling."


def test_the_task_and_its_arms(tmp_path: Path) -> None:
    assert benchmark.passes(["abc1", "ab1", "abcd"], [3, 3, 3], [True, True, False]) == [1.0, 0.0, 0.0]
    train, held_out = benchmark.rows(False), benchmark.rows(True)
    assert sum(not row["possible"] for row in train) == len(train) / 4
    assert all(row["possible"] for row in held_out)
    assert not {row["prompt"] for row in train} & {row["prompt"] for row in held_out}
    for arm in benchmark.ARMS:
        config = load(benchmark.configuration(arm, 3, 10, tmp_path)).config
        assert (config.run.seed, config.training.steps) == (3, 10)
