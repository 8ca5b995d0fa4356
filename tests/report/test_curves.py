"""Metrics as points: what is left out when there are many."""

import math

from groupwise.report.curves import curves


def test_every_value_of_a_short_run() -> None:
    lines = [{"step": 0, "eval/pass@1": 0.1}, *({"step": s, "reward/mean": s / 7} for s in range(1, 6))]
    found = curves(lines)
    assert found["steps"] == [0, 1, 2, 3, 4, 5]
    # 6 significant digits: 1/7 = 0.142857142...
    assert found["series"]["reward/mean"] == {"y": [None, 0.142857, 0.285714, 0.428571, 0.571429, 0.714286]}
    assert found["series"]["eval/pass@1"] == {"x": [0], "y": [0.1]}
    assert found["thinned"] is False
    assert found["about"]["reward/mean"].startswith("Mean total reward")


def test_what_is_not_finite_is_spelled() -> None:
    lines = [{"step": 1, "kl/token_mean": math.nan}, {"step": 2, "kl/token_mean": math.inf}]
    assert curves(lines)["series"]["kl/token_mean"]["y"] == ["NaN", "Infinity"]


def test_no_spike_is_lost() -> None:
    values = [1.0] * 5000
    values[1234], values[3210], values[4000] = 900.0, -7.0, math.nan
    found = curves([{"step": s, "grad/norm": v} for s, v in enumerate(values, start=1)], points=100)
    series = found["series"]["grad/norm"]
    kept = dict(zip(series["x"], series["y"], strict=True))
    assert (kept[1235], kept[3211], kept[4001]) == (900.0, -7.0, "NaN")
    assert {1, 5000} <= kept.keys()
    assert len(kept) <= 103
    assert found["thinned"] is True
    assert series["x"] == sorted(series["x"])


def test_a_reward_s_own_metric_is_explained_by_its_pattern() -> None:
    about = curves([{"step": 1, "reward/part/a.b*c/mean": 1.0, "mine": 2.0}])["about"]
    assert about["reward/part/a.b*c/mean"].startswith("Mean of one reward")
    assert "mine" not in about
