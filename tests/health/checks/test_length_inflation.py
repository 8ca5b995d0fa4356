from groupwise.health.checks.length_inflation import length_inflation
from tests.health.series import FACTS, ever, history, kinds, rising, wobble


def test_doubling_and_halving() -> None:
    # 100 tokens at first: 200 is double, 50 is half.
    grown = {"length/mean": [100.0] * 5 + [200.0] * 5, "reward/mean": 0.5}
    shrunk = {"length/mean": [100.0] * 5 + [50.0] * 5, "reward/mean": 0.5}
    assert kinds(length_inflation(history(10, grown), FACTS)) == [("longer", "warning")]
    assert kinds(length_inflation(history(10, shrunk), FACTS)) == [("shorter", "warning")]
    less = {"length/mean": [100.0] * 5 + [199.0] * 5}
    assert length_inflation(history(10, less), FACTS) == []


def test_growth_that_pays_is_an_info() -> None:
    paid = {"length/mean": rising(100, 300, 40), "reward/mean": rising(0.1, 0.7, 40, 0.02)}
    assert kinds(length_inflation(history(40, paid), FACTS)) == [("longer", "info")]


def test_wrong_answers_that_grow_most_point_at_the_divisor() -> None:
    # Case n07: right ones by 1.5 (100 to 150), wrong ones by 4 (100 to 400).
    run = {
        "length/mean": [100.0] * 5 + [300.0] * 5,
        "length/right_mean": [100.0] * 5 + [150.0] * 5,
        "length/wrong_mean": [100.0] * 5 + [400.0] * 5,
    }
    found = length_inflation(history(10, run), FACTS)[0]
    assert found.causes[0].startswith("wrong answers are punished less per token")
    assert found.evidence["length/wrong_mean"] == 400
    other = {**run, "length/wrong_mean": [100.0] * 5 + [140.0] * 5}
    assert "reward is higher for longer" in length_inflation(history(10, other), FACTS)[0].causes[0]


def test_steady_or_short_responses_are_silent() -> None:
    assert ever(length_inflation, 60, {"length/mean": wobble(100, 20, 60)}) == []
    assert ever(length_inflation, 10, {"length/mean": [5.0] * 5 + [15.0] * 5}) == []
    assert ever(length_inflation, 9, {"length/mean": [10.0] * 4 + [900.0] * 5}) == []
