"""Which prompts are ready, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from groupwise.config.prompts import CurriculumConfig
from groupwise.errors import CheckpointError
from groupwise.prompts.curriculum import Curriculum
from groupwise.records import Prompt


def prompts(*passed: float | None) -> list[Prompt]:
    ids = np.array([1], dtype=np.int32)
    return [
        Prompt(id=f"x:{i}", source="x", messages=None, text="?", token_ids=ids, columns={"passed": value})
        for i, value in enumerate(passed)
    ]


def curriculum(*passed: float | None, **settings: Any) -> Curriculum:
    chosen = {"difficulty": (0.4, 0.8), "steps": 4, "mastered": 0.9, "again_after": 3, "column": "passed"}
    return Curriculum(CurriculumConfig(**{**chosen, **settings}), prompts(*passed), pass_reward=1.0)


def test_the_threshold_rises_along_a_line_and_lets_harder_prompts_in() -> None:
    one = curriculum(0.95, 0.7, 0.5, 0.3, 0.1)
    ready = {}
    for step in (0, 1, 2, 4, 9):
        ready[step] = one.begin(step).tolist()
        assert one.threshold == pytest.approx(min(0.4 + 0.1 * step, 0.8))
    # Difficulties: 0.05 (mastered), 0.3, 0.5, 0.7, 0.9.
    assert ready[0] == [False, True, False, False, False]
    assert ready[1] == [False, True, True, False, False]
    assert ready[2] == [False, True, True, False, False]
    assert ready[4] == ready[9] == [False, True, True, True, False]


def test_estimates_move_by_what_passes_and_a_null_begins_in_the_middle() -> None:
    one = curriculum(0.8, None, keep=0.75)
    assert one.success_P.tolist() == [0.8, 0.5]
    one.begin(2)
    # Two of four pass: 0.75 x 0.8 + 0.25 x 0.5. A reward just below 1 by rounding passes; none at all says nothing.
    one.learn([("x:0", [1.0, 1.0 - 1e-12, 0.9, 0.0]), ("x:1", [])])
    assert one.success_P.tolist() == pytest.approx([0.725, 0.5])
    assert one.sampled_P.tolist() == [2, -1]


def test_what_waits_or_is_passed_over_is_tried_again_when_it_is_due() -> None:
    one = curriculum(0.6, 0.6, keep=0.0)
    one.begin(0)
    one.learn([("x:0", [0.0]), ("x:1", [1.0])])
    # The first is too hard now and the only one that waits, so it is the easiest; the second is mastered.
    assert [one.begin(step).tolist() for step in (1, 2)] == [[True, False], [True, False]]
    assert one.begin(3).tolist() == [True, True]  # three steps after they were sampled, both are due


def test_where_nothing_is_ready_the_easiest_that_wait_are_and_then_the_mastered() -> None:
    assert curriculum(0.1, 0.3, 0.3).begin(0).tolist() == [False, True, True]
    assert curriculum(0.95, 0.3).begin(0).tolist() == [False, True]
    assert curriculum(0.95, 1.0).begin(0).tolist() == [True, True]


def test_the_state_is_a_copy_and_goes_on_exactly() -> None:
    one = curriculum(0.8, 0.2)
    one.begin(1)
    state = one.state()
    one.learn([("x:0", [0.0]), ("x:1", [1.0])])
    other = curriculum(0.8, 0.2)
    other.restore(state)
    assert other.success_P.tolist() == [0.8, 0.2]
    other.begin(1)
    other.learn([("x:0", [0.0]), ("x:1", [1.0])])
    assert other.success_P.tobytes() == one.success_P.tobytes()
    assert other.sampled_P.tobytes() == one.sampled_P.tobytes()
    with pytest.raises(CheckpointError, match="not of the 3 prompts of this run"):
        curriculum(0.8, 0.2, 0.1).restore(state)
