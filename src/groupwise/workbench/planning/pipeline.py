"""A step as a pipeline of sampling, scoring, training and handing weights over, followed in time. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Seconds that the parts of one step take."""

    generate: float
    """Sampling the batch."""
    reward: float
    """Scoring it by the rewards, before the sampler takes the next batch."""
    train: float
    """Old and reference log-probs, and the updates."""
    push: float
    """Handing the new weights to the sampler, in which both take part."""

    @property
    def total(self) -> float:
        """One after the other."""
        return self.generate + self.reward + self.train + self.push


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """When things happened, in seconds from the start."""

    trained: tuple[float, ...]
    """When the sampler had the weights of each step."""
    sampling: float
    """Seconds in which the sampler generated."""
    training: float
    """Seconds in which the trainer trained."""
    staleness: tuple[int, ...]
    """Updates between the weights that sampled each batch and those that it is trained on."""

    @property
    def seconds_per_step(self) -> float:
        """In the second half, where the start is no longer felt, without the last: nothing is sampled beside it."""
        half = len(self.trained) // 2
        if half < 2:
            return self.trained[-1] / len(self.trained)
        return (self.trained[-2] - self.trained[half - 1]) / (len(self.trained) - 1 - half)

    @property
    def sampler_idle(self) -> float:
        """Share of the time in which the sampler did not generate."""
        return 1 - self.sampling / self.trained[-1]

    @property
    def trainer_idle(self) -> float:
        """Share of the time in which the trainer did not train."""
        return 1 - self.training / self.trained[-1]


def simulate(steps: Sequence[Stages], *, overlap: int) -> Timeline:
    """Follow some steps in time.

    Batch k, counted from 0, is sampled with weights that at least k - overlap updates have made, and scored. The
    sampler takes the next batch as soon as it is free and such weights are there. The trainer takes batch k when it is
    scored and the weights of batch k - 1 are handed over. Weights are handed over when the update is made and the
    sampler is between two batches; both wait for it. So with constant times a step takes

    - overlap 0: generate + reward + train + push
    - overlap 1: max(generate + reward, train) + push

    Args:
        steps: what each step takes.
        overlap: updates by which the sampler may be behind; 0 is on-policy.

    Raises:
        ValueError: no steps, or an overlap below 0.
    """
    if not steps or overlap < 0:
        raise ValueError("a pipeline has at least one step and an overlap of 0 or more")
    handed: list[float] = []  # when the weights of each update were there
    generated: list[float] = []
    staleness: list[int] = []
    free = 0.0  # when the sampler ends what it does
    for k, step in enumerate(steps):
        if len(generated) == k:
            free = _generate(steps, k, overlap, free, handed, generated, staleness)
        begun = max(generated[k], handed[-1] if handed else 0.0)
        done = begun + step.train
        while len(generated) < len(steps) and len(generated) <= k + overlap:
            needed = len(generated) - overlap  # updates that must have been handed over
            if max(free, handed[needed - 1] if needed > 0 else 0.0) >= done:
                break
            free = _generate(steps, len(generated), overlap, free, handed, generated, staleness)
        free = max(done, free) + step.push
        handed.append(free)
    return Timeline(
        trained=tuple(handed),
        sampling=sum(step.generate for step in steps),
        training=sum(step.train for step in steps),
        staleness=tuple(staleness),
    )


def _generate(
    steps: Sequence[Stages],
    k: int,
    overlap: int,
    free: float,
    handed: Sequence[float],
    generated: list[float],
    staleness: list[int],
) -> float:
    """Sample and score batch k as soon as can be; gives when the sampler is free again."""
    needed = k - overlap
    start = max(free, handed[needed - 1] if needed > 0 else 0.0)
    staleness.append(k - sum(moment <= start for moment in handed))
    generated.append(start + steps[k].generate + steps[k].reward)
    return generated[-1]
