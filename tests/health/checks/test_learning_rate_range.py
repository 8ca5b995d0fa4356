from dataclasses import replace

import pytest

from groupwise.health.checks.learning_rate_range import learning_rate_range
from groupwise.health.facts import Facts
from tests.health.series import FACTS, history, kinds


def found(rate: float, millions: float | None, *, lora: bool = False) -> list[tuple[str, str]]:
    run: dict[str, float | list[float | None]] = {"training/learning_rate": rate}
    if millions is not None:
        run["training/weights_millions"] = [millions, None]
    return kinds(learning_rate_range(history(2, run), replace(FACTS, learning_rate=rate, lora=lora)))


@pytest.mark.parametrize(
    ("rate", "millions", "lora", "expected"),
    [
        (1e-6, 7000, False, []),
        (7e-5, 7000, False, []),  # 4 x 2e-5 = 8e-5
        (9e-5, 7000, False, [("high", "warning")]),
        (9e-5, None, False, [("high", "warning")]),  # taken for 7B
        (1e-7, 7000, False, [("low", "info")]),  # 5e-7 / 4 = 1.25e-7
        # 135 M: sqrt(7000 / 135) = 7.2, so 1.44e-4 usual and 5.8e-4 not yet far
        (5e-4, 135, False, []),
        (6e-4, 135, False, [("high", "warning")]),
        (2e-4, 7000, True, []),
        (9e-4, 7000, True, [("high", "warning")]),  # 4 x 2e-4
        (9e-6, 7000, True, [("low", "info")]),  # 1e-4 / 10
        (0.0, 7000, False, []),
    ],
)
def test_the_range_by_size_and_method(
    rate: float, millions: float | None, lora: bool, expected: list[tuple[str, str]]
) -> None:
    assert found(rate, millions, lora=lora) == expected


def test_a_foreign_log_without_its_method_is_not_judged() -> None:
    assert learning_rate_range(history(2, {"training/learning_rate": 1.0}), Facts()) == []
