"""A pipeline followed in time: by hand, against an event at a time, and against what holds of any."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.workbench.planning.pipeline import Stages, simulate

STAGES = st.builds(
    Stages,
    generate=st.floats(0.1, 50),
    reward=st.floats(0, 10),
    train=st.floats(0.1, 50),
    push=st.floats(0, 5),
)


def _stages(generate: float, reward: float, train: float, push: float) -> Stages:
    return Stages(generate=generate, reward=reward, train=train, push=push)


def test_in_turn_by_hand() -> None:
    # 5 + 1 + 3 + 0.5 = 9.5 a step, three times.
    line = simulate([_stages(5, 1, 3, 0.5)] * 3, overlap=0)
    assert line.trained == (9.5, 19.0, 28.5)
    assert line.staleness == (0, 0, 0)
    assert line.sampler_idle == pytest.approx(1 - 15 / 28.5)
    assert line.trainer_idle == pytest.approx(1 - 9 / 28.5)


def test_one_step_off_by_hand() -> None:
    # Batch 0: sampled and scored 0-6, trained 6-9; batch 1 is sampled and scored 6-12 meanwhile, so the weights are
    # handed over at 12-12.5. Batch 2 is drawn 12.5-18.5 beside the training of batch 1, 12.5-15.5, whose weights are
    # handed over at 18.5-19. Batch 2 is trained 19-22; nothing is left to sample: 22.5.
    line = simulate([_stages(5, 1, 3, 0.5)] * 3, overlap=1)
    assert line.trained == (12.5, 19.0, 22.5)
    assert line.staleness == (0, 1, 1)


@given(STAGES)
def test_with_constant_times_a_step_takes_what_the_formula_says(stages: Stages) -> None:
    off = simulate([stages] * 60, overlap=0)
    assert off.seconds_per_step == pytest.approx(stages.total)
    one = simulate([stages] * 60, overlap=1)
    # The last batches have nothing to sample beside them, so the end is a little faster or as fast.
    expected = max(stages.generate + stages.reward, stages.train) + stages.push
    assert one.seconds_per_step == pytest.approx(expected, rel=0.05)


@given(st.lists(STAGES, min_size=1, max_size=12), st.integers(0, 3))
def test_what_holds_of_any_pipeline(steps: list[Stages], overlap: int) -> None:
    line = simulate(steps, overlap=overlap)
    assert len(line.trained) == len(steps)
    assert all(a <= b for a, b in zip(line.trained, line.trained[1:], strict=False))
    assert max(line.staleness) <= overlap
    end = line.trained[-1]
    assert end <= sum(step.total for step in steps) + 1e-6
    assert end >= max(sum(s.generate for s in steps), sum(s.train for s in steps)) - 1e-6
    assert 0 <= line.sampler_idle <= 1
    assert 0 <= line.trainer_idle <= 1


@given(st.lists(STAGES, min_size=2, max_size=10))
def test_overlap_never_loses(steps: list[Stages]) -> None:
    # With pushes that wait for the sampler a deeper pipeline could; one step against none cannot.
    assert simulate(steps, overlap=1).trained[-1] <= simulate(steps, overlap=0).trained[-1] + 1e-6


def _tick_by_tick(steps: list[Stages], tick: float = 0.01) -> float:
    """Overlap 1 as two workers that look at the clock: the slow reference."""
    now, sampled, handed = 0.0, 0, 0
    busy_sampler = busy_trainer = math.inf  # when what they do ends
    ready: list[float] = []
    updated = False
    push_end = math.inf
    while handed < len(steps):
        if now >= busy_sampler - 1e-9:
            ready.append(now)
            sampled, busy_sampler = sampled + 1, math.inf
        if now >= busy_trainer - 1e-9:
            updated, busy_trainer = True, math.inf
        if now >= push_end - 1e-9:
            handed, updated, push_end = handed + 1, False, math.inf
        pushing = push_end < math.inf
        # What was due at this moment comes before a new push, so that ties fall as in the simulation.
        if updated and not pushing and busy_sampler == math.inf:
            push_end = now + steps[handed].push
            pushing = True
        if (
            not pushing
            and busy_sampler == math.inf
            and sampled < len(steps)
            and sampled <= handed + 1
            and not updated
        ):
            busy_sampler = now + steps[sampled].generate + steps[sampled].reward
        if (
            not pushing
            and not updated
            and busy_trainer == math.inf
            and len(ready) > handed
            and now >= ready[handed] - 1e-9
        ):
            busy_trainer = now + steps[handed].train
        now += tick
    return now


def test_two_workers_that_look_at_the_clock_need_as_long() -> None:
    rng = random.Random(3)
    for _ in range(20):
        steps = [
            _stages(rng.uniform(1, 6), rng.uniform(0, 1), rng.uniform(1, 6), rng.uniform(0.1, 0.5))
            for _ in range(8)
        ]
        found = simulate(steps, overlap=1).trained[-1]
        assert _tick_by_tick(steps) == pytest.approx(found, abs=0.6)  # a tick for each of some fifty waits


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one step"):
        simulate([], overlap=0)
    with pytest.raises(ValueError, match="an overlap of 0 or more"):
        simulate([_stages(1, 0, 1, 0)], overlap=-1)
