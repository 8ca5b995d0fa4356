from dataclasses import replace

from groupwise.health.checks.gradient_spike import gradient_spike
from tests.health.series import FACTS, ever, history, kinds, wobble

FREE = replace(FACTS, max_grad_norm=None)


def test_ten_times_the_median_is_a_spike() -> None:
    # The median of before is 0.5: ten times that is 5, a hundred times 50.
    def run(last: float) -> dict[str, list[float]]:
        return {"grad/norm": [0.5] * 10 + [last]}

    assert kinds(gradient_spike(history(11, run(5.0)), FREE)) == [("spike", "warning")]
    assert kinds(gradient_spike(history(11, run(50.0)), FREE)) == [("spike", "critical")]
    assert gradient_spike(history(11, run(4.9)), FREE) == []


def test_what_is_scaled_down_cannot_do_much() -> None:
    # Scaled down to 1, which is 2 medians of 0.5, but 20 medians of 0.05.
    assert kinds(gradient_spike(history(11, {"grad/norm": [0.5] * 10 + [50.0]}), FACTS)) == [
        ("spike", "info")
    ]
    assert kinds(gradient_spike(history(11, {"grad/norm": [0.05] * 10 + [50.0]}), FACTS)) == [
        ("spike", "warning")
    ]


def test_steps_without_a_gradient_do_not_count() -> None:
    assert gradient_spike(history(21, {"grad/norm": [0.0] * 20 + [1.0]}), FREE) == []


def test_usual_noise_is_silent() -> None:
    assert ever(gradient_spike, 60, {"grad/norm": wobble(1.0, 0.7, 60)}, FREE) == []
    assert (
        gradient_spike(history(10, {"grad/norm": [0.5] * 9 + [90.0]}), FREE) == []
    )  # nine are too few to tell
