from groupwise.health.checks.entropy_collapse import entropy_collapse
from tests.health.series import FACTS, ever, history, kinds, rising


def test_a_tenth_of_the_start_is_a_collapse() -> None:
    # 2 nats at first; a tenth is 0.2.
    fallen = [2.0] * 5 + [1.0] * 5 + [0.19] * 5
    found = entropy_collapse(history(15, {"policy/entropy": fallen}), FACTS)
    assert kinds(found) == [("collapse", "warning")]
    assert found[0].summary == "entropy fell from 2 to 0.19 nats per token"
    assert entropy_collapse(history(15, {"policy/entropy": [*fallen[:10], *([0.21] * 5)]}), FACTS) == []


def test_a_solved_task_needs_no_entropy() -> None:
    solved = {"policy/entropy": [2.0] * 10 + [0.1] * 5, "reward/pass_fraction": 0.95}
    assert kinds(entropy_collapse(history(15, solved), FACTS)) == [("collapse", "info")]


def test_none_from_the_start_is_the_temperature() -> None:
    found = entropy_collapse(history(10, {"policy/entropy": 0.01, "sampler/temperature": 0.1}), FACTS)
    assert kinds(found) == [("none", "warning")]
    assert found[0].causes[0] == "the temperature is too low"
    assert found[0].evidence["sampler/temperature"] == 0.1


def test_entropy_that_is_spent_slowly_is_silent() -> None:
    assert ever(entropy_collapse, 100, {"policy/entropy": rising(2.0, 0.4, 100, 0.05)}) == []
    assert ever(entropy_collapse, 9, {"policy/entropy": 0.0}) == []
