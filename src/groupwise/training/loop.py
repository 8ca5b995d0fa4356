"""The training loop: sample a group per prompt, score it, turn scores into advantages, update, record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from groupwise.checkpoint.export import save_model
from groupwise.health.metric import Mean, Metric, Total, combine, values
from groupwise.records import StepRecord, TrainingGroup
from groupwise.rollouts.collect import collect
from groupwise.training.advantages import advantages, judge_all
from groupwise.training.batch import mini_batches
from groupwise.training.logprobs import kl_penalties, logprobs_of, training_groups
from groupwise.training.measure import measure, of_rewards, peak_memory_megabytes
from groupwise.training.notices import questions
from groupwise.training.setup import Run

Groups = tuple[TrainingGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run ends with."""

    folder: Path
    """The run folder."""
    metrics: list[dict[str, float]]
    """The numbers of each step, in order; a line of step 0 is the evaluation before the first update."""

    def series(self, name: str) -> list[float]:
        """One metric over the steps that have it."""
        return [line[name] for line in self.metrics if name in line]


def train(run: Run) -> Result:
    """Train to the end and save the model.

    Raises:
        GroupwiseError: the run could not go on; what was written before is intact.
    """
    lines: list[dict[str, float]] = []

    def record(step: int, metrics: dict[str, float], groups: Groups = ()) -> None:
        run.recorder.write(StepRecord(step=step, groups=groups, metrics=metrics))
        lines.append({"step": step, **metrics})

    with closing(run.engine), run.recorder:
        if run.held_out and run.config.evaluate.at_start:
            record(0, values(evaluation(run, 0)))
        for step in range(1, run.steps + 1):
            started = time.perf_counter()
            groups, metrics = train_step(run, step)
            if step == 1:
                metrics |= run.at_start
            if evaluation_due(run, step):
                metrics |= evaluation(run, step)
            metrics["time/step_seconds"] = Total(time.perf_counter() - started)
            metrics["memory/peak_rss_mb"] = Mean(peak_memory_megabytes(), 1)
            record(step, values(metrics), groups)
        if run.config.run.save_model:
            save_model(run.policy, run.folder.model_dir)
    return Result(folder=run.folder.path, metrics=lines)


def train_step(run: Run, step: int) -> tuple[Groups, dict[str, Metric]]:
    """One batch: its groups as they were trained on, and its metrics."""
    config = run.config
    clock: dict[str, Metric] = {}
    run.begin(step - 1)
    prompts = [run.prompts[i] for i in run.order.next()]
    collected = collect(
        run.engine,
        prompts,
        replace(run.sampling, temperature=run.temperature.value),
        run.score(step - 1),
        group_size=config.rollout.group_size,
        seed=(config.run.seed, step),
    )
    judged = judge_all(collected.groups, config.objective)
    with timed(clock, "time/logprobs_seconds"):
        logprobs = logprobs_of(
            judged,
            policy=run.old_forward,
            reference=run.reference_forward,
            reference_weights=run.reference_weights,
        )
        penalties = kl_penalties(judged, logprobs, config.objective.kl, run.kl.beta)
    off = None if penalties is None else penalties.of_groups
    groups = training_groups(
        judged,
        logprobs,
        advantages(judged, run.inputs.estimate, credit=config.objective.credit, penalties=off),
    )
    with timed(clock, "time/update_seconds"):
        rows = run.updater.rows(groups)
        parts = mini_batches(rows, config.training.mini_batches) * config.training.updates_per_batch
        updates = [run.updater.update(part, first=i == 0) for i, part in enumerate(parts)]
        run.engine.load_weights(run.updater.updates, run.policy.model)
    metrics = measure(groups) | combine(updates) | clock
    metrics |= {} if penalties is None else penalties.metrics
    seconds = collected.generate_seconds
    metrics |= {
        "kl/beta": Mean(run.kl.beta, 1),
        "sampler/temperature": Mean(run.temperature.value, 1),
        "training/learning_rate": Mean(run.optimizer.rate, 1),
        "training/updates": Mean(run.updater.updates, 1),
        "training/epoch": Mean(run.order.passes, 1),
        "tokens/trained": Total(sum(row.trainable_tokens for row in rows)),
        "time/generate_seconds": Total(seconds),
        "time/reward_seconds": Total(collected.reward_seconds),
        "tokens/per_second": Mean(metrics["tokens/generated"].value, seconds),
    }
    metrics |= of_rewards(run.inputs.rewards.take_metrics())
    run.kl.end(metrics)
    for kind, sentence in questions(step, metrics, run.updater.clip_width):
        run.recorder.notice(kind, sentence)
    return tuple(groups), metrics


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
    run.inputs.rewards.take_metrics()  # what rewards say of held-out prompts is not of the batch
    run.recorder.samples(step, result.groups)
    return result.metrics | clock


@contextmanager
def timed(clock: dict[str, Metric], name: str) -> Iterator[None]:
    """Put the seconds of the block into the clock."""
    started = time.perf_counter()
    yield
    clock[name] = Total(time.perf_counter() - started)
