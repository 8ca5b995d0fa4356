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


def test_a_jump_is_many_times_the_median_of_before() -> None:
    # Median of ten steps 0.02; five times that is 0.1.
    before = [0.02] * 10
    assert kinds(kl_runaway(history(11, {"kl/token_mean": [*before, 0.11]}), FACTS)) == [("jump", "warning")]
    # A steady rise is none, however far it goes: that of a warm-up, as the fourth power of the steps, gives 0.051 at
    # step 20, 16 times the median of the steps before, (20 / 10)^4.
    warm_up = [3.2e-7 * step**4 for step in range(1, 31)]
    for steps in range(1, 31):
        assert kl_runaway(history(steps, {"kl/token_mean": warm_up[:steps]}), FACTS) == []
    assert kl_runaway(history(11, {"kl/token_mean": [*before, 0.09]}), FACTS) == []
    # Near 0 a ratio means nothing: 0.04 is twenty times 0.002, and still small.
    assert kl_runaway(history(11, {"kl/token_mean": [*([0.002] * 10), 0.04]}), FACTS) == []
    # With fewer than half the window there is nothing to compare with.
    assert kl_runaway(history(6, {"kl/token_mean": [*([0.02] * 5), 0.5]}), FACTS) == []


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
