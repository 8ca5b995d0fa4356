from groupwise.health.checks.repetition import repetition
from tests.health.series import FACTS, ever, history, kinds, wobble

NAME = "diversity/repeated_4_fraction"


def test_a_third_warns_and_two_thirds_are_critical() -> None:
    assert kinds(repetition(history(10, {NAME: [0.05] * 5 + [0.33] * 5}), FACTS)) == [("within", "warning")]
    assert kinds(repetition(history(10, {NAME: [0.05] * 5 + [0.66] * 5}), FACTS)) == [("within", "critical")]
    assert repetition(history(10, {NAME: [0.05] * 5 + [0.29] * 5}), FACTS) == []


def test_what_the_model_came_with_is_an_info() -> None:
    # 0.4 is less than 1.5 x 0.3 = 0.45.
    assert kinds(repetition(history(10, {NAME: [0.3] * 5 + [0.4] * 5}), FACTS)) == [("within", "info")]


def test_prose_and_code_are_silent() -> None:
    assert ever(repetition, 50, {NAME: wobble(0.15, 0.08, 50)}) == []
    assert ever(repetition, 4, {NAME: 0.9}) == []
