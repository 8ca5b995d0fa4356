"""Direct preference optimisation: a run on pairs of responses, with the parts that training has.

The policy is its own reference before the first update, so the reference's log-probs are computed then, once for every
pair that the run will see, and no second model is held.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from groupwise.checkpoint.export import save_model
from groupwise.checkpoint.randomness import ProcessRandomness
from groupwise.checkpoint.state import Stateful
from groupwise.config import LoadedConfig, RunConfig
from groupwise.health.metric import Mean, Metric, Total, combine, values
from groupwise.model.load import Policy, load_policy
from groupwise.model.logprobs import TokenLogprobs
from groupwise.objective.dpo import PreferenceTerms, dpo
from groupwise.prompts.order import PromptOrder
from groupwise.records import StepRecord
from groupwise.records.replace import replace_file
from groupwise.records.run_folder import RunFolder, fingerprints, refuse
from groupwise.training.batch import families_of
from groupwise.training.distributed import refuse_several
from groupwise.training.forward import Forward, score_responses
from groupwise.training.keeper import Keeper
from groupwise.training.loop import Result
from groupwise.training.measure import peak_memory_megabytes, timed
from groupwise.training.opening import open_recorder
from groupwise.training.ordering import order_of, steps_of
from groupwise.training.recorder import Recorder
from groupwise.training.resume import Resumed, check_data, refuse_without_python, take_up
from groupwise.training.samples import code, document, fenced
from groupwise.training.schedules import Temperature
from groupwise.training.setup import forward_of, introduced
from groupwise.training.weights import GuardedStep, Optimizer, learning_rate
from groupwise.workbench.preferences import Pair, PreferenceInputs, encode_pairs, read_preferences

Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], PreferenceTerms]
_SHOWN = 8

Reference = Mapping[str, NDArray[np.float64]]
"""Prompt id to the summed log-probs of the chosen and the rejected response under the reference, shape [2], nats."""


class ReferenceLogprobs:
    """Summed log-probs of both responses of each pair under the reference, which is gone once training has begun."""

    def __init__(self) -> None:
        """Begin with none."""
        self.by_id: Reference = {}

    def state(self) -> dict[str, Any]:
        """Prompt ids and their two numbers."""
        return {"ids": list(self.by_id), "sums": np.array(list(self.by_id.values())).reshape(-1, 2)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `checkpoint.state.Stateful`."""
        self.by_id = dict(zip(state["ids"], state["sums"], strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceRun:
    """The parts of a run on pairs, ready to train."""

    loaded: LoadedConfig
    """The configuration."""
    policy: Policy
    """What is trained."""
    pairs: list[Pair]
    """To train on."""
    held_out: list[Pair]
    """To evaluate on."""
    order: PromptOrder
    """Which pairs make each batch."""
    steps: int
    """Batches in the run."""
    forward: Forward
    """Scores responses."""
    optimizer: Optimizer
    """The policy's weights and rate."""
    guard: GuardedStep
    """Changes the weights."""
    reference: ReferenceLogprobs
    """What the policy was before its first update."""
    recorder: Recorder
    """Writes the records."""
    keeper: Keeper
    """Where the run stands, and its checkpoints."""

    @property
    def parts(self) -> dict[str, Stateful]:
        """Everything that decides the future beside the weights, by its name in a checkpoint; the recorder last."""
        return {
            "keeper": self.keeper,
            "order": self.order,
            "optimizer": self.optimizer,
            "updates": self.guard,
            "reference": self.reference,
            "randomness": ProcessRandomness(),
            "health": self.recorder.watch,
            "recorder": self.recorder,
        }

    @property
    def config(self) -> RunConfig:
        """The configuration's values."""
        return self.loaded.config

    @property
    def folder(self) -> RunFolder:
        """Where everything is written."""
        return self.recorder.folder

    @property
    def loss(self) -> Loss:
        """The loss with its settings."""
        chosen = self.config.dpo
        return functools.partial(dpo, beta=chosen.beta, label_smoothing=chosen.label_smoothing)


def resume(
    loaded: LoadedConfig,
    resumed: Resumed,
    *,
    train: Sequence[Mapping[str, Any]] | None = None,
    held_out: Sequence[Mapping[str, Any]] | None = None,
) -> PreferenceRun:
    """The run of a folder in the state of its checkpoint; see `training.start.resume`.

    Raises:
        GroupwiseError: one sentence naming what is wrong, where, and the remedy; the folder is as it was.
    """
    with resumed.given_up_on_error():
        given = [name for name, rows in (("train", train), ("held_out", held_out)) if rows is not None]
        refuse_without_python(resumed.folder, rewards=False, rows=given)
        inputs = read_preferences(loaded, train=train, held_out=held_out)
        check_data(resumed.folder, fingerprints(**inputs.origin))
        return assemble(inputs, resumed=resumed)


def assemble(
    inputs: PreferenceInputs, *, console: Console | None = None, resumed: Resumed | None = None
) -> PreferenceRun:
    """Load the model and build every part.

    Args:
        inputs: configuration and pairs.
        console: where people are told; the terminal by default.
        resumed: the run that is gone on with; None for a new one.

    Raises:
        GroupwiseError: of whichever part cannot be built; one sentence with the remedy.
    """
    config = inputs.config
    refuse_several("method dpo")
    if resumed is None:
        refuse(Path(config.run.dir) if config.run.dir else None, overwrite=config.run.overwrite)
    policy = load_policy(
        config.model,
        lora=config.lora,
        base=inputs.loaded.base,
        seed=config.run.seed,
        memory=config.memory,
    )
    pairs, told = encode_pairs(inputs.train, config, policy)
    notices = [*inputs.notices, *told]
    held_out: list[Pair] = []
    if inputs.held_out:
        held_out, more = encode_pairs(inputs.held_out, config, policy)
        notices += more
        held_out = held_out[: config.evaluate.prompts]
    longest = max(
        len(pair.prompt.token_ids) + len(answer.rollout.token_ids_T)
        for pair in (*pairs, *held_out)
        for answer in pair.answers
    )
    scorer = TokenLogprobs(policy.model, longest_tokens=longest)
    notices.append(introduced(policy, scorer))
    order = order_of(config, [pair.prompt.source for pair in pairs], config.dpo.pairs_per_step)
    steps = steps_of(config, order)
    optimizer = Optimizer(policy.model, config.training)
    recorder = open_recorder(
        inputs.loaded,
        steps=steps,
        notices=notices,
        console=console,
        origin=inputs.origin,
        resumed=resumed,
    )
    run = PreferenceRun(
        loaded=inputs.loaded,
        policy=policy,
        pairs=pairs,
        held_out=held_out,
        order=order,
        steps=steps,
        forward=forward_of(scorer, config, Temperature(config.rollout)),
        optimizer=optimizer,
        guard=GuardedStep(optimizer, config.training, report=recorder.fault),
        reference=ReferenceLogprobs(),
        recorder=recorder,
        keeper=Keeper(recorder.folder, config.checkpoint, policy),
    )
    ProcessRandomness().seed(config.run.seed)
    if resumed is not None:
        take_up(run, resumed)
    return run


def train(run: PreferenceRun) -> Result:
    """Train to the end and save the model.

    Raises:
        GroupwiseError: the run could not go on; what was written before is intact.
    """
    lines = run.recorder.lines()
    config = run.config

    def record(step: int, metrics: dict[str, float]) -> None:
        run.recorder.write(StepRecord(step=step, groups=(), metrics=metrics))
        lines.append({"step": step, **metrics})

    with run.keeper.watching(), run.recorder:
        clock: dict[str, Metric] = {}
        if not run.reference.by_id:
            with timed(clock, "time/logprobs_seconds"):
                run.reference.by_id = reference_logprobs(run)
        run.keeper.border(run.parts)
        if not lines and run.held_out and config.evaluate.at_start:
            record(0, values(evaluation(run, 0, run.reference.by_id) | clock))
        while run.keeper.step < run.steps:
            started = time.perf_counter()
            step = run.keeper.step + 1
            with run.keeper.changing():
                metrics = train_step(run, step, run.reference.by_id)
            due = config.evaluate.every_steps is not None and step % config.evaluate.every_steps == 0
            if run.held_out and (due or (step == run.steps and config.evaluate.at_end)):
                metrics |= evaluation(run, step, run.reference.by_id)
            metrics["time/step_seconds"] = Total(time.perf_counter() - started)
            metrics["memory/peak_rss_mb"] = Mean(peak_memory_megabytes(), 1)
            record(step, values(metrics))
            run.keeper.finished(step, metrics, run.recorder.watch)
            run.keeper.border(run.parts)
        run.keeper.end()
        if config.run.save_model:
            save_model(run.policy, run.folder.model_dir)
    return Result(folder=run.folder.path, metrics=lines)


def reference_logprobs(run: PreferenceRun) -> Reference:
    """Of every pair that the run will train or evaluate on, by the policy as it is; call it before the first update."""
    ahead = order_of(run.config, [pair.prompt.source for pair in run.pairs], run.config.dpo.pairs_per_step)
    used = dict.fromkeys(i for _ in range(min(run.steps, ahead.steps_per_epoch)) for i in ahead.next())
    if run.steps > ahead.steps_per_epoch and len(used) < len(
        run.pairs
    ):  # drop_last leaves others out each epoch
        used = dict.fromkeys(range(len(run.pairs)))
    pairs = [*(run.pairs[i] for i in sorted(used)), *run.held_out]
    sums = summed(run.forward, pairs)
    return {pair.prompt.id: sums[i] for i, pair in enumerate(pairs)}


def summed(forward: Forward, pairs: Sequence[Pair]) -> NDArray[np.float64]:
    """Summed log-probs of both responses of each pair without gradient, shape [pairs, 2], nats."""
    scored = score_responses(forward, [answer for pair in pairs for answer in pair.answers])
    return np.array([logprobs_T.sum(dtype=np.float64) for logprobs_T in scored]).reshape(-1, 2)


def parts_of(pairs: Sequence[Pair], *, tokens: int, rollouts: int | None) -> Iterator[list[Pair]]:
    """Pairs in order, as many at a time as the budgets of tokens and responses allow; a pair is never split."""
    part: list[Pair] = []
    held = 0
    for pair in pairs:
        full = rollouts is not None and 2 * len(part) + 2 > rollouts
        if part and (held + pair.tokens > tokens or full):
            yield part
            part, held = [], 0
        part.append(pair)
        held += pair.tokens
    if part:
        yield part


def preference_terms(
    forward: Forward, pairs: Sequence[Pair], reference: Reference, loss: Loss
) -> PreferenceTerms:
    """The loss of each pair of one forward pass, with gradient."""
    answers = [answer for pair in pairs for answer in pair.answers]
    logprobs_M, _ = forward.scorer(families_of(answers), temperature=forward.temperature.value)
    lengths = [len(answer.rollout.token_ids_T) for answer in answers]
    sums = torch.stack([logprobs_T.sum() for logprobs_T in torch.split(logprobs_M, lengths)])
    known = torch.from_numpy(np.stack([reference[pair.prompt.id] for pair in pairs])).to(sums)
    return loss(sums[0::2], sums[1::2], known[:, 0], known[:, 1])


def train_step(run: PreferenceRun, step: int, reference: Reference) -> dict[str, Metric]:
    """One update on one batch of pairs."""
    clock: dict[str, Metric] = {}
    pairs = [run.pairs[i] for i in run.order.next()]
    rate = learning_rate(run.config.training, step - 1, run.steps)
    run.optimizer.set_rate(rate)
    with timed(clock, "time/update_seconds"):
        metrics = update(run, pairs, reference)
    lengths = [len(answer.rollout.token_ids_T) for pair in pairs for answer in pair.answers]
    return (
        metrics
        | clock
        | {
            "training/learning_rate": Mean(rate, 1),
            "training/updates": Mean(run.guard.updates, 1),
            "training/epoch": Mean(run.order.passes, 1),
            "tokens/trained": Total(sum(lengths)),
            "length/mean": Mean.of(lengths),
        }
    )


def update(run: PreferenceRun, pairs: Sequence[Pair], reference: Reference) -> dict[str, Metric]:
    """One optimiser step on the mean loss of the pairs, in as many forward passes as memory needs."""
    run.optimizer.zero_grad()
    run.policy.model.train()
    measured: list[dict[str, Metric]] = []
    for part in parts_of(pairs, tokens=run.forward.tokens, rollouts=run.forward.rollouts):
        terms = preference_terms(run.forward, part, reference, run.loss)
        (terms.loss_P.sum() / len(pairs)).backward()
        measured.append(measure(terms))
    run.policy.model.eval()
    metrics = combine(measured)
    return metrics | run.guard.apply(metrics["dpo/loss"].value)


def measure(terms: PreferenceTerms) -> dict[str, Metric]:
    """Sums over some pairs."""
    found = {
        "dpo/loss": terms.loss_P.detach(),
        "dpo/accuracy": terms.right_P,
        "dpo/margin_mean": terms.chosen_reward_P - terms.rejected_reward_P,
        "dpo/chosen_reward_mean": terms.chosen_reward_P,
        "dpo/rejected_reward_mean": terms.rejected_reward_P,
    }
    return {name: Mean(float(value_P.sum()), len(value_P)) for name, value_P in found.items()}


def evaluation(run: PreferenceRun, step: int, reference: Reference) -> dict[str, Metric]:
    """Measure the held-out pairs, write some for people, and give the metrics."""
    clock: dict[str, Metric] = {}
    with timed(clock, "time/evaluate_seconds"):
        sums = torch.from_numpy(summed(run.forward, run.held_out))
        known = torch.from_numpy(np.stack([reference[pair.prompt.id] for pair in run.held_out]))
        terms = run.loss(sums[:, 0], sums[:, 1], known[:, 0], known[:, 1])
    _write_samples(run, step, terms)
    found = measure(terms)
    return clock | {
        "eval/dpo_loss": found["dpo/loss"],
        "eval/dpo_accuracy": found["dpo/accuracy"],
        "eval/dpo_margin_mean": found["dpo/margin_mean"],
        "eval/dpo_chosen_reward_mean": found["dpo/chosen_reward_mean"],
        "eval/dpo_rejected_reward_mean": found["dpo/rejected_reward_mean"],
    }


def _write_samples(run: PreferenceRun, step: int, terms: PreferenceTerms) -> None:
    sections = []
    for i, pair in enumerate(run.held_out[:_SHOWN]):
        chosen, rejected = float(terms.chosen_reward_P[i]), float(terms.rejected_reward_P[i])
        sections += [
            f"## {code(pair.prompt.id)}, margin {chosen - rejected:+.4f}",
            fenced(pair.prompt.text),
            f"### Chosen, implied reward {chosen:+.4f}",
            fenced(pair.chosen.rollout.text),
            f"### Rejected, implied reward {rejected:+.4f}",
            fenced(pair.rejected.rollout.text),
        ]
    title = f"Step {step}, held-out evaluation"
    text = document(title, sections, len(run.held_out), _SHOWN).encode("utf-8", errors="replace")
    replace_file(run.folder.sample_file(step, held_out=True), lambda file: file.write(text))
