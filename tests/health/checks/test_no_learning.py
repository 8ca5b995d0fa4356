import pytest

from groupwise.health.checks.no_learning import no_learning
from groupwise.health.facts import Facts
from tests.health.series import FACTS, ever, history, kinds, rising, wobble

FLAT = {
    "reward/mean": wobble(0.3, 0.05, 100),
    "reward/std": 0.4,
    "reward/zero_spread_fraction": 0.2,
    "grad/norm": 0.5,
    "kl/token_mean": 0.01,
    "kl/beta": 0.04,
    "length/truncated_fraction": 0.05,
    "sampler/gap_abs_mean": 1e-5,
}


@pytest.mark.parametrize(
    ("sign", "cause"),
    [
        ({"grad/norm": 0.0}, "no_gradient"),
        ({"reward/zero_spread_fraction": 0.8}, "dead_groups"),
        ({"kl/beta": 0.5}, "large_beta"),
        ({"kl/token_mean": 1e-6}, "low_rate"),
        ({"length/truncated_fraction": 0.7}, "truncation"),
        ({"sampler/gap_abs_mean": 0.03}, "mismatch"),  # a tenth of the clip of 0.2 is 0.02
        ({}, "reward"),
    ],
)
def test_the_likeliest_cause_comes_first(sign: dict[str, float], cause: str) -> None:
    found = no_learning(history(100, {**FLAT, **sign}), FACTS)
    assert kinds(found) == [(cause, "warning")]
    assert len(found[0].causes) == len(found[0].remedies) == 3


def test_a_norm_that_is_not_logged_is_no_gradient_only_where_each_update_logs_it() -> None:
    told = {name: value for name, value in FLAT.items() if name != "grad/norm"}
    assert kinds(no_learning(history(100, told), FACTS)) == [("no_gradient", "warning")]
    assert kinds(no_learning(history(100, told), Facts())) == [("reward", "warning")]


def test_a_rise_of_a_quarter_of_the_std_is_learning() -> None:
    # The std is 0.4: a quarter is 0.1. From 0.3 to 0.41 between the first and the last tenth is more, to 0.39 is not.
    def stepped(end: float) -> dict[str, float | list[float]]:
        return {**FLAT, "reward/mean": wobble(0.3, 0.05, 90) + wobble(end, 0.05, 10)}

    assert no_learning(history(100, stepped(0.41)), FACTS) == []
    assert len(no_learning(history(100, stepped(0.39)), FACTS)) == 1


def test_runs_that_learn_have_learned_or_are_young_are_silent() -> None:
    assert ever(no_learning, 150, {**FLAT, "reward/mean": rising(0.3, 0.5, 150, 0.05)}) == []
    plateau = rising(0.1, 0.6, 50, 0.02) + wobble(0.6, 0.03, 150)
    assert ever(no_learning, 200, {**FLAT, "reward/mean": plateau}) == []
    assert no_learning(history(100, {**FLAT, "reward/pass_fraction": 0.95}), FACTS) == []
    assert ever(no_learning, 99, {**FLAT, "reward/mean": wobble(0.3, 0.05, 99)}) == []
