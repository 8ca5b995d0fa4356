"""The page of predicted and measured memory, from measurements that are made up."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.plan import BOUND, GIB, POINTS, fit, page, phase, predicted


def _held(off: dict[str, float], base: float = 0.5) -> dict[str, Any]:
    runs = [{"point": "base", "peak_memory_mb": base * 1024}]
    runs += [
        {"point": name, "peak_memory_mb": predicted(name) * (1 + by) / 2**20} for name, by in off.items()
    ]
    machine = {"processor": "some processor", "cores": 2, "memory_gb": 24.0}
    return {"identity": {"machine": machine, "threads": 1}, "runs": runs}


def test_six_are_fitted_to_and_six_of_another_model_are_not() -> None:
    fitted = {name for name, point in POINTS.items() if point.fitted}
    assert len(fitted) == 6
    assert len(POINTS) == 12
    assert {POINTS[name].model for name in fitted} == {"embedded"}
    assert {point.model for name, point in POINTS.items() if name not in fitted} == {"other"}


def test_the_fit_finds_what_the_measurements_were_made_with() -> None:
    names = [name for name, point in POINTS.items() if point.fitted]
    held = _held({})
    held["runs"] += [
        {"point": name, "peak_memory_mb": (0.5 * GIB + 1.07 * phase(name)[1]) / 2**20} for name in names
    ]
    found = fit(held)
    assert found["base"] == pytest.approx(0.5 * GIB)
    assert found["factor"] == pytest.approx(1.07)


def test_the_page_says_how_far_each_is_off_and_what_was_not_measured() -> None:
    text = page(_held({"full": -0.2, "lora": 0.0, "other-full": 0.05}))
    rows = {line.split("|")[2].strip(): line for line in text.splitlines() if line.startswith("| embedded")}
    assert "+25.0%" in rows["full"]  # predicted 1, measured 0.8
    assert "+0.0%" in rows["LoRA"]
    assert "not measured" in rows["full, larger batch"]
    assert f"Of 2 fitted, 1 are within {BOUND:.0%}; the worst is off by 25.0%." in " ".join(text.split())
    assert "Of 1 not fitted, 1 are within 15%; the worst is off by 4.8%." in " ".join(text.split())


def test_the_page_shows_seven_billion_with_its_arithmetic() -> None:
    text = page(_held({}))
    assert "## 7B with LoRA on a card of 24 GB" in text
    assert "- weights: (4 x 7,615,616,512 + 4 x 40,370,176 of the adapter) = 28.52 GiB" in text
    assert "- weights: (4 x 7,615,616,512) / 2 = 14.19 GiB" in text
    assert "it does not fit" in text
    assert "model.dtype=bfloat16: saves" in text
