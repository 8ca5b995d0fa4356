from dataclasses import replace

from groupwise.health.checks.stale_rollouts import stale_rollouts
from tests.health.series import FACTS, ever, history, kinds

NAME = "sampler/lag_updates_mean"


def test_lag_counts_in_steps() -> None:
    assert kinds(stale_rollouts(history(5, {NAME: 4.0}), FACTS)) == [("lag", "warning")]
    assert kinds(stale_rollouts(history(5, {NAME: 16.0}), FACTS)) == [("lag", "critical")]
    # Eight updates a step: 24 updates are three steps, 32 are four.
    eight = replace(FACTS, updates_per_step=8)
    assert stale_rollouts(history(5, {NAME: 24.0}), eight) == []
    assert kinds(stale_rollouts(history(5, {NAME: 32.0}), eight)) == [("lag", "warning")]


def test_a_sampler_that_keeps_up_is_silent() -> None:
    assert ever(stale_rollouts, 10, {NAME: 0.0}) == []
    assert ever(stale_rollouts, 10, {"reward/mean": 0.0}) == []
