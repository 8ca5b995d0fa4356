from groupwise.health.checks.kl_stuck import kl_stuck
from tests.health.series import FACTS, ever, history, kinds, rising, wobble

FLAT = {"kl/token_mean": 1e-4, "kl/beta": 0.5, "reward/mean": wobble(0.3, 0.05, 60)}


def test_a_leash_that_is_too_short() -> None:
    found = kl_stuck(history(60, FLAT), FACTS)
    assert kinds(found) == [("flat", "warning")]  # 0.5 is above the usual 0.1
    assert "outweighs" in found[0].causes[0]
    assert (found[0].first_step, found[0].last_step) == (11, 60)  # the last 50
    usual = kl_stuck(history(60, {**FLAT, "kl/beta": 0.04}), FACTS)
    assert kinds(usual) == [("flat", "info")]
    assert "learning rate" in usual[0].causes[0]


def test_a_policy_that_moves_or_learns_or_has_no_leash_is_silent() -> None:
    assert kl_stuck(history(60, {**FLAT, "kl/token_mean": 6e-4}), FACTS) == []
    assert ever(kl_stuck, 60, {**FLAT, "reward/mean": rising(0.1, 0.6, 60, 0.02)}) == []
    assert ever(kl_stuck, 60, {**FLAT, "kl/beta": 0.0}) == []
    assert ever(kl_stuck, 49, FLAT) == []
