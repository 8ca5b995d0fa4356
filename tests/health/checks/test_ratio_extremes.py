from dataclasses import replace

from groupwise.health.checks.ratio_extremes import ratio_extremes
from groupwise.health.facts import Facts
from tests.health.series import FACTS, ever, history, kinds

FINE = {"ratio/max": 1.4, "ratio/min": 0.7, "ratio/clamped_count": 0.0}


def test_clamped_log_ratios_are_critical() -> None:
    found = ratio_extremes(history(3, {**FINE, "ratio/clamped_count": [0.0, 2.0, 1.0]}), FACTS)
    assert kinds(found) == [("clamped", "critical")]
    assert found[0].summary.startswith("3 log-ratios")


def test_a_third_of_the_tokens_clipped() -> None:
    # 0.2 below and 0.11 above are 0.31 of all tokens.
    clipped = {**FINE, "clip/low_fraction": 0.2, "clip/high_fraction": 0.11}
    assert kinds(ratio_extremes(history(5, clipped), FACTS)) == [("clipped", "warning")]
    assert ratio_extremes(history(5, {**clipped, "clip/high_fraction": 0.09}), FACTS) == []
    # A clip as narrow as GSPO's is meant to bite.
    gspo = replace(FACTS, clip_width=3e-4)
    assert kinds(ratio_extremes(history(5, clipped), gspo)) == [("clipped", "info")]


def test_single_extremes_are_an_info_when_they_go_on() -> None:
    assert kinds(ratio_extremes(history(5, {**FINE, "ratio/max": 12.0}), FACTS)) == [("extreme", "info")]
    assert ratio_extremes(history(5, {**FINE, "ratio/max": [12.0, 1.0, 1.0, 1.0, 12.0]}), FACTS) == []


def test_an_extreme_on_both_sides_of_a_step_is_one_step() -> None:
    # Two of five steps are fewer than half; three are not.
    both = {**FINE, "ratio/max": [1.0, 12.0, 1.0, 12.0, 1.0], "ratio/min": [0.9, 0.01, 0.9, 0.01, 0.9]}
    assert ratio_extremes(history(5, both), FACTS) == []
    third = {**both, "ratio/min": [0.01, 0.01, 0.9, 0.01, 0.9]}
    assert kinds(ratio_extremes(history(5, third), FACTS)) == [("extreme", "info")]


def test_a_log_without_ratios_is_judged_by_what_is_clipped() -> None:
    for clipped in (
        {"clip/low_fraction": 0.2, "clip/high_fraction": 0.11},
        {"clip/high_fraction": 0.31},
        {"clip/low_fraction": 0.31},
    ):
        found = ratio_extremes(history(5, clipped), Facts())
        assert kinds(found) == [("clipped", "warning")]
        assert (found[0].first_step, "ratio/max" in found[0].evidence) == (1, False)
        assert ratio_extremes(history(4, clipped), Facts()) == []
    assert ratio_extremes(history(5, {"clip/low_fraction": 0.2, "clip/high_fraction": 0.09}), Facts()) == []
    assert ratio_extremes(history(5, {"reward/mean": 0.5}), Facts()) == []


def test_reuse_is_the_likeliest_cause_where_there_is_any() -> None:
    run = history(5, {**FINE, "clip/low_fraction": 0.5, "clip/high_fraction": 0.0})
    assert "updates" in ratio_extremes(run, replace(FACTS, updates_per_step=8))[0].causes[0]
    assert "learning rate" in ratio_extremes(run, FACTS)[0].causes[0]


def test_on_policy_ratios_are_silent() -> None:
    assert ever(ratio_extremes, 20, {"ratio/max": 1.0, "ratio/min": 1.0, "ratio/clamped_count": 0.0}) == []
    assert ever(ratio_extremes, 20, {**FINE, "clip/low_fraction": 0.05, "clip/high_fraction": 0.05}) == []
