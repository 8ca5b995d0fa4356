"""Held-out evaluation in a run: when, and what is kept of it."""

from __future__ import annotations

from groupwise.health.metric import Metric
from groupwise.training.measure import timed
from groupwise.training.setup import Run


def evaluation_due(run: Run, step: int) -> bool:
    """True after the last step and every `evaluate.every_steps`."""
    config = run.config.evaluate
    due = config.every_steps is not None and step % config.every_steps == 0
    return bool(run.held_out) and (due or (step == run.steps and config.at_end))


def evaluation(run: Run, step: int) -> dict[str, Metric]:
    """Evaluate, write samples for people, and give the metrics."""
    clock: dict[str, Metric] = {}
    with timed(clock, "time/evaluate_seconds"):
        result = run.evaluate(step)
    run.inputs.evaluation.take_metrics()  # what rewards say of held-out prompts is not of the batch
    run.recorder.samples(step, result.groups)
    return result.metrics | clock
