from groupwise.health.checks.truncation import truncation
from tests.health.series import FACTS, ever, history, kinds, wobble

ALL, RIGHT, WRONG = (
    "length/truncated_fraction",
    "length/right_truncated_fraction",
    "length/wrong_truncated_fraction",
)


def test_a_fifth_warns_and_half_is_critical() -> None:
    # Case n07: more than 20 % cut off.
    assert kinds(truncation(history(10, {ALL: 0.21}), FACTS)) == [("limit", "warning")]
    assert kinds(truncation(history(10, {ALL: 0.51}), FACTS)) == [("limit", "critical")]
    assert truncation(history(10, {ALL: 0.2}), FACTS) == []
    assert truncation(history(4, {ALL: 1.0}), FACTS) == []  # half the window is 5


def test_being_cut_off_does_no_harm_where_right_answers_are_too() -> None:
    # 0.57 is not more than 0.05 below 0.6; 0.5 is.
    assert kinds(truncation(history(10, {ALL: 0.6, RIGHT: 0.57, WRONG: 0.6}), FACTS)) == [("limit", "info")]
    harmed = truncation(history(10, {ALL: 0.6, RIGHT: 0.5, WRONG: 0.6}), FACTS)
    assert kinds(harmed) == [("limit", "critical")]
    assert harmed[0].evidence[RIGHT] == 0.5
    assert kinds(truncation(history(10, {ALL: 0.6, RIGHT: 0.6}), FACTS)) == [
        ("limit", "info")
    ]  # none is wrong


def test_few_are_silent() -> None:
    assert ever(truncation, 40, {ALL: wobble(0.1, 0.08, 40)}) == []
