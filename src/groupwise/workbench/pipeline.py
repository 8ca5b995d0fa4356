"""How long a run takes when sampling and training take turns or overlap: the step's pipeline, simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Seconds of the stages of one step."""

    sample: float
    """Sampling and scoring a batch."""
    train: float
    """Everything that the trainer does with a batch: log-probs, updates, recording."""
    hand_over: float = 0.0
    """Giving the engine the new weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """When a run is where."""

    finished: tuple[float, ...]
    """Seconds from the start to the end of each step."""
    sampler_busy: float
    """Share of the time in which the sampler works."""
    trainer_busy: float
    """Share of the time in which the trainer works; handing over is neither's."""

    @property
    def seconds(self) -> float:
        """Of the whole run."""
        return self.finished[-1]


def simulate(steps: Sequence[Stages], *, overlap: int) -> Timeline:
    """Go through the steps of a run as the training loop does.

    Without overlap a step is sample, train, hand over. With it the first batch is sampled alone; then batch k + 1 is
    sampled while batch k is trained, and the weights are handed over when both have finished. So a step takes the
    longer of the two, and the gain is at most the shorter one: never more than half of the time.

    Args:
        steps: the stages of each step, at least one.
        overlap: `rollout.overlap`, 0 or 1.

    Raises:
        ValueError: there are no steps, a stage takes less than no time, or `overlap` is another number.
    """
    if not steps:
        raise ValueError("there are no steps to go through")
    if overlap not in (0, 1):
        raise ValueError(f"overlap is {overlap}, and may be 0 or 1")
    if any(seconds < 0 for step in steps for seconds in (step.sample, step.train, step.hand_over)):
        raise ValueError("a stage takes less than no time")
    finished: list[float] = []
    now = steps[0].sample if overlap else 0.0
    for k, step in enumerate(steps):
        if overlap:
            following = steps[k + 1].sample if k + 1 < len(steps) else 0.0
            now += max(step.train, following)
        else:
            now += step.sample + step.train
        now += step.hand_over
        finished.append(now)
    total = max(now, 1e-12)
    return Timeline(
        finished=tuple(finished),
        sampler_busy=sum(step.sample for step in steps) / total,
        trainer_busy=sum(step.train for step in steps) / total,
    )


def with_samplers(stages: Stages, times: float) -> Stages:
    """The stages with so many times the samplers, which share the prompts of a batch: sampling takes that much less."""
    return Stages(sample=stages.sample / times, train=stages.train, hand_over=stages.hand_over)


def with_trainers(stages: Stages, times: float) -> Stages:
    """The stages with so many times the trainers, which share the batch: training takes that much less."""
    return Stages(sample=stages.sample, train=stages.train / times, hand_over=stages.hand_over)
