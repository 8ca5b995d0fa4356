"""The training loop: sample a group per prompt, score it, turn scores into advantages, update, record."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from groupwise.checkpoint.export import save_model
from groupwise.health.metric import Mean, Metric, Total, values
from groupwise.records import StepRecord, TrainingGroup
from groupwise.training.advantages import advantages, judge_all, value_targets
from groupwise.training.ahead import hand_over
from groupwise.training.batch import mini_batches
from groupwise.training.draw import draw
from groupwise.training.filters import of_filter
from groupwise.training.held_out import evaluation, evaluation_due
from groupwise.training.in_use import BatchInUse
from groupwise.training.logprobs import kl_penalties, logprobs_of, training_groups
from groupwise.training.measure import measure, of_correction, of_rewards, peak_memory_megabytes, timed
from groupwise.training.non_finite import without_faults
from groupwise.training.notices import questions
from groupwise.training.rollback import go_back
from groupwise.training.setup import Run
from groupwise.training.teaching import teach

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
    """Train to the end and save the model; a resumed run goes on where it stood.

    Raises:
        GroupwiseError: the run could not go on; what was written before is intact.
        Interrupted: it was asked to end, and ended at a clean point.
    """
    lines = run.recorder.lines()

    def record(step: int, metrics: dict[str, float], groups: Groups = ()) -> None:
        acted = run.recorder.write(StepRecord(step=step, groups=groups, metrics=metrics))
        lines.append({"step": step, **metrics, **acted})

    with run.ranks.contact(), run.keeper.watching(), closing(run.engine), run.recorder:
        run.keeper.border(run.parts, run.keeper.batch)
        if not lines and run.held_out and run.config.evaluate.at_start:
            record(0, values(evaluation(run, 0)))
        while run.keeper.step < run.steps:
            started = time.perf_counter()
            step = run.keeper.step + 1
            groups, metrics = train_step(run, step)
            if step == 1:
                metrics |= run.at_start
            if evaluation_due(run, step):
                metrics |= evaluation(run, step)
            metrics["time/step_seconds"] = Total(time.perf_counter() - started)
            metrics["memory/peak_rss_mb"] = Mean(peak_memory_megabytes(), 1)
            record(step, values(metrics), groups)
            run.keeper.finished(step, metrics, run.recorder.watch)
            go_back(run)
            run.keeper.border(run.parts)
        run.keeper.end()
        if run.config.run.save_model:
            save_model(run.policy, run.folder.model_dir, by=run.ranks.from_first)
    return Result(folder=run.folder.path, metrics=lines)


def train_step(run: Run, step: int) -> tuple[Groups, dict[str, Metric]]:
    """One batch: its groups as they were trained on, and its metrics."""
    config = run.config
    batch = run.keeper.batch or sample(run, step)
    run.apply(step - 1)
    rows = run.updater.rows(batch.groups)
    parts = mini_batches(rows, config.training.mini_batches) * config.training.updates_per_batch
    for i in range(batch.done, len(parts)):
        clock: dict[str, Metric] = {}
        with run.keeper.changing(), timed(clock, "time/update_seconds"):
            update = run.update(parts[i], step, first=i == 0)
        batch = batch.after(update | clock)
        run.keeper.border(run.parts, batch)
    handed = hand_over(run.ahead, run.engine, run.config.rollout, run.updater.updates, run.policy.model)
    metrics = {**batch.metrics, **batch.updates, **run.probe.measure(step), **handed, **of_correction(rows)}
    metrics |= {} if run.critic is None else run.critic.measure(rows)
    metrics |= {
        "kl/beta": Mean(run.kl.beta, 1),
        "sampler/temperature": Mean(run.temperature.value, 1),
        "training/learning_rate": Mean(run.optimizer.rate, 1),
        "training/updates": Mean(run.updater.updates, 1),
        "training/epoch": Mean(run.order.passes, 1),
        "tokens/trained": Total(sum(row.trainable_tokens for row in rows)),
    }
    run.kl.end(metrics)
    width, unit = run.updater.clip_width, run.inputs.estimate.keeps_unit
    for kind, sentence in questions(step, metrics, config.objective, width, unit):
        run.recorder.notice(kind, sentence)
    return batch.groups, metrics


def sample(run: Run, step: int) -> BatchInUse:
    """The batch of a step, sampled, scored and with the log-probs that its updates need."""
    config = run.config
    clock: dict[str, Metric] = {}
    run.begin(step - 1)
    with run.sampling_of_a_step():
        collected, drawing, said = run.ahead.take(step, lambda: draw(run, step))
    if config.rollout.overlap and step < run.steps:
        run.ahead.start(step + 1, lambda: draw(run, step + 1), run.parts)
    judged = judge_all(collected.groups, config.objective)
    with timed(clock, "time/logprobs_seconds"):
        logprobs = logprobs_of(
            judged,
            policy=run.old_forward,
            reference=run.reference_forward,
            reference_weights=run.reference_at(step),
        )
    expected = targets = None
    if run.critic is not None:
        with timed(clock, "time/critic_seconds"):
            expected = run.critic.values(judged)
    judged, fault = without_faults(judged, logprobs, expected)
    penalties = kl_penalties(judged, logprobs, config.objective.kl, run.kl.beta)
    off, credit = None if penalties is None else penalties.of_groups, config.objective.credit
    if expected is not None:
        targets = value_targets(judged, run.inputs.estimate, credit=credit, penalties=off, values=expected)
    estimated = advantages(judged, run.inputs.estimate, credit=credit, penalties=off, values=expected)
    groups = training_groups(judged, logprobs, estimated, values=expected, targets=targets)
    metrics = measure(groups, pass_reward=run.pass_reward, updates=run.updater.updates) | clock
    metrics |= drawing
    metrics |= {} if penalties is None else penalties.metrics
    metrics |= {} if fault is None else run.updater.guard.skip(fault)
    metrics |= of_rewards(said)
    metrics |= of_filter(collected.groups, config.objective.filter)
    groups, taught = teach(run, groups, step)
    return BatchInUse(groups=tuple(groups), metrics=metrics | taught)
