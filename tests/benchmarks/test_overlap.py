"""What overlap saves, from seconds worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.overlap import gains, page, simulated, stages_of

STAGES = {"generate": 1.2, "reward": 0.1, "train": 0.9, "push": 0.05}


def _runs(ahead: float) -> list[dict[str, Any]]:
    turns = sum(STAGES.values())  # 2.25
    return [
        {"pair": 0, "overlap": 0, "seconds": [9.0, 9.0, turns, turns, turns, 9.0], "stages": [STAGES] * 6},
        {"pair": 0, "overlap": 1, "seconds": [9.0, 9.0, ahead, ahead, ahead, 0.1]},
    ]


def test_stages_are_what_is_none_of_the_others() -> None:
    line = {"time/generate_seconds": 1.2, "time/reward_seconds": 0.1, "time/weights_seconds": 0.05}
    assert stages_of(line | {"time/step_seconds": 2.25}) == pytest.approx(STAGES)


def test_gain_and_distance_by_hand() -> None:
    # In turn 1.2 + 0.1 + 0.9 + 0.05 = 2.25; ahead max(1.2 + 0.1, 0.9) + 0.05 = 1.35: saves 1 - 1.35 / 2.25 = 40 %.
    # Measured 1.5: saves a third, and the simulation is off by 1.35 / 1.5 - 1 = -10 %.
    assert simulated([STAGES] * 3, 0) == pytest.approx(2.25)
    assert simulated([STAGES] * 3, 1) == pytest.approx(1.35)
    [found] = gains(_runs(1.5))
    expected = {"turns": 2.25, "ahead": 1.5, "saved": 1 / 3, "simulated": 1.35, "said": 0.4, "off": -0.1}
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("ahead", "words"), [(1.5, ["reached (33.3%", "held (10.0%"]), (1.8, ["NOT reached (20.0%", "NOT held"])]
)
def test_the_page_says_whether_the_bounds_hold(ahead: float, words: list[str]) -> None:
    machine = {"processor": "some processor", "cores": 2}
    identity = {"sleep": 1.0, "steps": 6, "threads": 1, "machine": machine}
    text = " ".join(page({"identity": identity, "runs": _runs(ahead)}).split())
    for each in words:
        assert f": {each}" in text
