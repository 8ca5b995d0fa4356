from groupwise.health.checks.kl_runaway import kl_runaway
from tests.health.series import FACTS, ever, history, kinds, rising


def test_one_step_above_the_limit_warns_and_two_are_critical() -> None:
    # 0.8 is the limit: 0.81 is above it, 0.79 below.
    once = history(3, {"kl/token_mean": [0.5, 0.79, 0.81]})
    twice = history(3, {"kl/token_mean": [0.5, 0.81, 0.81]})
    assert kinds(kl_runaway(once, FACTS)) == [("limit", "warning")]
    assert kinds(kl_runaway(twice, FACTS)) == [("limit", "critical")]
    assert (kl_runaway(twice, FACTS)[0].first_step, kl_runaway(twice, FACTS)[0].last_step) == (2, 3)
    assert kl_runaway(once, FACTS, token_limit=0.9) == []


def test_a_jump_is_many_times_the_median_of_before_and_lasts() -> None:
    # Median of ten steps 0.02; five times that is 0.1.
    before = [0.02] * 10

    def found(*values: float) -> list[tuple[str, str]]:
        return kinds(kl_runaway(history(len(values), {"kl/token_mean": values}), FACTS))

    assert found(*before, 0.11, 0.11) == [("jump", "warning")]
    assert found(*before, 0.09, 0.11) == found(*before, 0.11, 0.09) == []
    # One step alone may be one rare token, whose k3 is an exp.
    assert found(*before, 0.11) == found(*before, 0.5, 0.02) == []
    # Three times the largest of the last three steps too: 0.04 asks for 0.12.
    assert found(*before, 0.04, 0.11, 0.11) == []
    assert found(*before, 0.04, 0.13, 0.13) == [("jump", "warning")]
    # Near 0 a ratio means nothing: 0.04 is twenty times 0.002, and still small.
    assert found(*([0.002] * 10), 0.04, 0.04) == []
    # With fewer than half the window there is nothing to compare with.
    assert found(*([0.02] * 5), 0.5, 0.5) == []


def test_a_steady_rise_is_no_jump() -> None:
    # In a warm-up KL goes with the fourth power of the steps: 0.051 at step 20 is (20 / 10)^4 = 16 times the median of
    # the steps before, but the lower of the last two is never more than (11 / 10)^4 = 1.5 times what was before them.
    for scale in (3.2e-7, 5e-6):
        warm_up = [scale * step**4 for step in range(1, 20)]
        assert ever(kl_runaway, 19, {"kl/token_mean": warm_up}) == []


def test_a_coefficient_of_0_is_the_likeliest_cause() -> None:
    run = {"kl/token_mean": 1.5, "kl/beta": 0.0}
    assert kl_runaway(history(2, run), FACTS)[0].causes[0] == "the KL coefficient is 0"
    assert (
        kl_runaway(history(2, {**run, "kl/beta": 0.04}), FACTS)[0].causes[0]
        == "the learning rate is too high"
    )


def test_a_run_that_learns_is_silent() -> None:
    assert ever(kl_runaway, 100, {"kl/token_mean": rising(0.0, 0.3, 100, 0.01)}) == []
    assert ever(kl_runaway, 20, {"reward/mean": 1.0}) == []
