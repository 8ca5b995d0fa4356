"""One step of a run computed again from its records, and what differs from what was logged.

Rewards and advantages need the records alone. Log-probs and the loss need the weights that began the step, which a
checkpoint of the end of the step before holds; with one, every update of the step is made again, in memory.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.config import LoadedConfig, load
from groupwise.config.checkpoint import CheckpointConfig
from groupwise.config.evaluate import EvaluateConfig
from groupwise.config.prompts import ColumnsConfig, PromptsConfig
from groupwise.errors import CheckpointError, RunFolderError
from groupwise.records import Rollout, StopReason, TrainingGroup, Verdict
from groupwise.records.metrics_file import read_metrics
from groupwise.records.rollout_file import read_rollouts
from groupwise.records.run_folder import RunFolder, read_manifest

if TYPE_CHECKING:
    from groupwise.training.advantages import Judged
    from groupwise.training.logprobs import Penalties
    from groupwise.training.setup import Run

EXACT = 1e-9
"""Rewards and advantages are computed as they were, so they may differ by this share of their size, or of 1."""
ROUNDED = 1e-3
"""Log-probs (in nats) and what follows from them may differ by this much, or this share: the sampler computes token by
token, and another machine or another number of threads rounds otherwise. Where layers compute in less than float32 it
is twice the largest gap that this makes on the step's prompts, when that is more."""

_SHOWN = 12
# How the work was done: what sampling left behind is not there in a replay.
_WORK = ("time/", "tokens/reused")
# Parts whose memory a replay has no use for.
_STARTED_ELSEWHERE = ("keeper", "recorder", "order", "probe", "curriculum")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One kind of number."""

    name: str
    """What it is."""
    said: str
    """How many were computed, or why none was."""
    differences: list[str] = field(default_factory=list)
    """Each that differs: where, what was logged and what was computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What was computed again."""

    step: int
    """Of the run."""
    rollouts: int
    """Looked at."""
    parts: list[Part]
    """One for each kind of number."""

    @property
    def differences(self) -> int:
        """How many numbers differ."""
        return sum(len(part.differences) for part in self.parts)

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"step {self.step}, {self.rollouts} rollouts"
        for part in self.parts:
            yield f"{part.name:<11}  {part.said}"
            for each in part.differences[:_SHOWN]:
                yield f"{'':<11}  {each}"
            if len(part.differences) > _SHOWN:
                yield f"{'':<11}  and {len(part.differences) - _SHOWN} more"
        count = self.differences
        yield f"{count} of the numbers differ from what was logged" if count else "no differences"


def replay(path: Path, step: int, *, group: int | None = None, rewards: Sequence[Any] = ()) -> Replayed:
    """Compute a step again. Nothing in the run folder is changed, and the run may still be going on.

    Args:
        path: the run folder.
        step: which, from 1.
        group: compare the rewards, advantages and log-probs of this group only, from 0.
        rewards: the reward functions that the run was given in Python; without them its rewards are not computed.

    Raises:
        RunFolderError: not a run, or one without rollouts of that step or without that group.
        GroupwiseError: a reward or the model cannot be found any more.
    """
    folder = RunFolder(Path(path).expanduser().absolute())
    manifest = read_manifest(folder)
    given = manifest.get("python_rewards", [])
    words, mixed = _settings_of(manifest.get("resumed", []), step)
    loaded = load(folder.config_file, words)
    if loaded.config.method == "dpo":
        raise RunFolderError(
            f"the run in {folder.shown} trains on given pairs, so it has no rollouts to replay"
        )
    logged = _logged(folder, step)
    groups = read_rollouts(folder.rollout_file(step))
    if group is not None and not 0 <= group < len(groups):
        raise RunFolderError(f"step {step} has the groups 0 to {len(groups) - 1}, and no group {group}")
    scored = bool(rewards) or not given
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="groupwise-replay-")))
        run = _assembled(loaded, groups, place, step, rewards if scored else [_unknown])
        stack.callback(run.recorder.close)
        stack.callback(run.inputs.rewards.close)
        why = _restored(run, folder, step, scored=scored)
        sampled, judged, penalties = _judged(run, groups, logged)
        parts = [
            _rewards(run, sampled, step, group, restored=why is None)
            if scored
            else Part(name="rewards", said=f"not computed: given in Python ({', '.join(given)})"),
            _advantages(run, sampled, groups, judged, penalties, group),
            _metrics(run, sampled, penalties, logged),
        ]
        if why is None:
            trained = [replace(j, group=entry.group) for j, entry in zip(judged, groups, strict=True)]
            parts.append(_logprobs(run, groups, trained, step, group))
            parts.append(
                _updates(run, groups, logged, step)
                if mixed is None
                else Part(
                    name="updates", said=f"not computed: the run was resumed in the middle of it with {mixed}"
                )
            )
        else:
            parts.append(Part(name="log-probs", said=f"not computed, nor is the loss: {why}"))
    shown = groups if group is None else [groups[group]]
    return Replayed(step=step, rollouts=sum(len(g.group.rollouts_G) for g in shown), parts=parts)


def _unknown(completions: Sequence[str], **columns: Any) -> list[None]:
    return [None] * len(completions)


def _settings_of(resumed: Sequence[Mapping[str, Any]], step: int) -> tuple[list[str], str | None]:
    """Settings that a step was computed with where they differ from the run's configuration, which is that of its end.

    Args:
        resumed: the manifest's field, the earliest resumption first.
        step: from 1.

    Returns:
        The settings as `key=value`; and one that was changed between two updates of the step, or None.
    """
    from groupwise.checkpoint.manifest import Position

    def changed(entry: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        matters = ("training.", "model.", "rollout.", "evaluate.pass_reward")
        return {key: each for key, each in entry["changed"].items() if key.startswith(matters)}

    begun = [Position.of(entry["at"]) or Position(0) for entry in resumed]
    # Each life of a run removes what others had written after where it begins.
    life = next((i for i in reversed(range(len(begun))) if begun[i].step < step), -1)
    settings = {
        key: each["before"] for entry in reversed(resumed[life + 1 :]) for key, each in changed(entry).items()
    }
    mixed = None
    while life >= 0 and mixed is None and begun[life].step == step - 1 and begun[life].update:
        mixed = next((f"another {key}" for key in changed(resumed[life])), None)
        life -= 1
    return [f"{key}={json.dumps(value)}" for key, value in settings.items()], mixed


def _logged(folder: RunFolder, step: int) -> Mapping[str, float]:
    lines = read_metrics(folder.metrics_file)
    for line in lines:
        if line["step"] == step and step > 0:
            return line
    last = max((int(line["step"]) for line in lines), default=0)
    there = f"it has finished the steps 1 to {last}" if last else "it has finished none"
    raise RunFolderError(f"the run in {folder.shown} has no step {step}; {there}")


def _assembled(
    loaded: LoadedConfig, groups: Sequence[TrainingGroup], place: Path, step: int, rewards: Sequence[Any]
) -> Run:
    """The run's parts in a folder of their own, with the prompts of the step in place of its data."""
    from rich.console import Console

    from groupwise.training.inputs import read_inputs
    from groupwise.training.setup import assemble

    config = loaded.config
    column = "prompt"
    while any(
        column in g.group.prompt.columns for g in groups
    ):  # of the row's own, which rewards may ask for
        column += "_"
    steps = config.training.steps or max(step, config.training.warmup_steps)
    alone = config.model_copy(
        update={
            "prompts": PromptsConfig(columns=ColumnsConfig(prompt=column)),
            "evaluate": EvaluateConfig(pass_reward=config.evaluate.pass_reward),
            "checkpoint": CheckpointConfig(save=False),
            "training": config.training.model_copy(update={"steps": steps, "epochs": None}),
            "run": config.run.model_copy(
                update={"dir": str(place / "run"), "sinks": (), "save_rollouts": False, "save_model": False}
            ),
        }
    )
    rows = [{**g.group.prompt.columns, column: g.group.prompt.text} for g in groups]
    inputs = read_inputs(
        LoadedConfig(config=alone, origins=loaded.origins, base=loaded.base), rewards=rewards, train=rows
    )
    inputs = replace(inputs, prompts=[g.group.prompt for g in groups])
    return assemble(inputs, console=Console(quiet=True))


def _restored(run: Run, folder: RunFolder, step: int, *, scored: bool) -> str | None:
    """Put the run where it stood before the step; why not, when there is no checkpoint for that."""
    from groupwise.checkpoint.manifest import Position
    from groupwise.checkpoint.restore import find_checkpoint, read_parts, restore
    from groupwise.checkpoint.save import saved_checkpoints

    wanted = Position(step - 1)
    there = [position for position, _ in saved_checkpoints(folder.checkpoints_dir)]
    if wanted not in there:
        listed = ", ".join(str(position) for position in there) or "none"
        return f"that needs the checkpoint of {wanted}, and there are those of {listed}"
    try:
        found = find_checkpoint(folder.checkpoints_dir, wanted.folder, say=lambda sentence: None)
    except CheckpointError as error:
        return str(error)
    left_out = (*_STARTED_ELSEWHERE, *(() if scored else ("rewards",)))
    parts = {name: part for name, part in run.parts.items() if name not in left_out}
    states = {name: state for name, state in read_parts(found).items() if name not in left_out}
    restore(found, states, policy=run.policy, parts=parts)
    return None


def _rewards(
    run: Run, groups: Sequence[TrainingGroup], step: int, only: int | None, *, restored: bool
) -> Part:
    flat = [(g.group.prompt, answer) for g in groups for answer in _answers(g)]
    verdicts = iter(
        run.score(step - 1)([prompt for prompt, _ in flat], [rollout for _, (rollout, _) in flat])
    )
    normalised = run.inputs.rewards.normalises and not restored
    differences, count = [], 0
    for g, entry in enumerate(groups):
        for rollout, then in _answers(entry):
            now = next(verdicts)
            if only not in (None, g):
                continue
            count += 1
            pairs = list(_pairs(then, now, normalised=normalised))
            said = rollout.token_ids_T[: -1 if rollout.stop_reason is StopReason.STOP else None]
            differences += [
                f"{_place(g, rollout)}, {what}: {_shown(old)} was logged, {_shown(new)} computed"
                for what, old, new in pairs
                if not _alike(old, new, EXACT)
            ]
            if run.policy.decode(said.tolist()) != rollout.text:
                differences.append(
                    f"{_place(g, rollout)}, text: its tokens say something else than was logged"
                )
    what = (
        "parts of rewards (their sum is normalised with what only a checkpoint knows)"
        if normalised
        else "rewards"
    )
    return Part(name="rewards", said=f"{count} {what} computed", differences=differences)


def _pairs(
    then: Verdict, now: Verdict, *, normalised: bool
) -> Iterator[tuple[str, float | None, float | None]]:
    """What a verdict holds, as it was logged and as it is computed; only the parts where the sum is `normalised`."""
    if not normalised:
        yield "reward", then.reward, now.reward
    for label in {**then.parts, **now.parts}:
        yield f"part {label}", then.parts.get(label), now.parts.get(label)
    if normalised:
        return
    for label in {**then.terms, **now.terms} if then.terms else ():  # early records have none
        yield f"term {label}", then.terms.get(label), now.terms.get(label)
    along = then.token_rewards or (), now.token_rewards or ()
    if len(along[0]) != len(along[1]):
        yield "rewards along the response", float(len(along[0])), float(len(along[1]))
        return
    for t, (one, other) in enumerate(zip(*along, strict=True)):
        yield f"reward of token {t}", one, other


def _judged(
    run: Run, groups: Sequence[TrainingGroup], logged: Mapping[str, float]
) -> tuple[list[TrainingGroup], list[Judged], Penalties | None]:
    """The groups without notes, what their verdicts decide, and what the KL in the records takes off the rewards."""
    from groupwise.training.advantages import judge_all
    from groupwise.training.logprobs import Logprobs, kl_penalties
    from groupwise.training.teaching import untaught

    config = run.config.objective
    groups = [untaught(entry, run.policy.decode) for entry in groups]
    judged = judge_all([entry.group for entry in groups], config)
    if not any(entry.in_loss_G.any() for entry in groups):  # as after a number that was not finite
        nothing = [np.zeros_like(entry.in_loss_G) for entry in groups]
        judged = [replace(j, in_loss_G=n, counted_G=n) for j, n in zip(judged, nothing, strict=True)]
    known = [
        Logprobs(old_GT=entry.old_logprobs_GT, reference_GT=entry.reference_logprobs_GT) for entry in groups
    ]
    penalties = kl_penalties(judged, known, config.kl, logged.get("kl/beta", config.kl.beta))
    return groups, judged, penalties


def _advantages(
    run: Run,
    groups: Sequence[TrainingGroup],
    trained: Sequence[TrainingGroup],
    judged: Sequence[Judged],
    penalties: Penalties | None,
    only: int | None,
) -> Part:
    """`groups` as they were sampled, `trained` with the notes that some hold; a taught rollout's are not compared."""
    from groupwise.training.advantages import advantages

    values = None if groups[0].values_GT is None else [entry.values_GT or () for entry in groups]
    found = advantages(
        judged,
        run.inputs.estimate,
        credit=run.config.objective.credit,
        penalties=None if penalties is None else penalties.of_groups,
        values=values,
    )
    differences, count = [], 0
    for g, (entry, one, arrays) in enumerate(zip(groups, judged, found, strict=True)):
        if only not in (None, g):
            continue
        if one.zero_spread != entry.zero_spread:
            differences.append(
                f"group {g}, equal rewards: {entry.zero_spread} was logged, {one.zero_spread} computed"
            )
        for i, (rollout, then_T, now_T) in enumerate(
            zip(entry.group.rollouts_G, entry.advantages_GT, arrays, strict=True)
        ):
            count += 1
            then, now = bool(entry.in_loss_G[i]), bool(one.in_loss_G[i])
            if then != now:
                differences.append(f"{_place(g, rollout)}, in the loss: {then} was logged, {now} computed")
            if trained[g].group.rollouts_G[i].inserted_T is not None:
                continue
            gap_T = ~(np.abs(then_T - now_T) <= EXACT * np.maximum(1.0, np.abs(then_T)))
            if gap_T.any():
                t = int(np.argmax(gap_T))
                differences.append(
                    f"{_place(g, rollout)}, advantage of token {t}: {_shown(then_T[t])} was logged, "
                    f"{_shown(now_T[t])} computed"
                )
    return Part(
        name="advantages", said=f"{count} computed from the rewards in the records", differences=differences
    )


def _metrics(
    run: Run, groups: Sequence[TrainingGroup], penalties: Penalties | None, logged: Mapping[str, float]
) -> Part:
    """The metrics that follow from the records of the whole batch."""
    from groupwise.health.metric import values
    from groupwise.training.measure import measure

    metrics = measure(groups, pass_reward=run.pass_reward)
    found = values(metrics | ({} if penalties is None else penalties.metrics))
    found["tokens/generated"] += logged.get("tokens/left_out", 0.0)  # of groups that are in no record
    if run.config.objective.teaching is not None:  # advantages were measured before the notes came in
        found = {name: value for name, value in found.items() if not name.startswith("advantage/")}
    names, differences = _compared(found, logged, EXACT)
    said = f"{names} of {len(logged) - 1} follow from the records, and were computed"
    return Part(name="metrics", said=said, differences=differences)


def _logprobs(
    run: Run, groups: Sequence[TrainingGroup], judged: Sequence[Judged], step: int, only: int | None
) -> Part:
    from groupwise.training.logprobs import logprobs_of

    run.begin(step - 1)
    found = logprobs_of(
        judged,
        policy=run.updater.forward,
        reference=run.reference_forward,
        reference_weights=run.reference_at(step),
    )
    near = _near(run)
    differences, largest, count = [], 0.0, 0
    for g, (entry, now) in enumerate(zip(groups, found, strict=True)):
        if only not in (None, g):
            continue
        for i, rollout in enumerate(entry.group.rollouts_G):
            kept_T = np.float32(1) if rollout.kept_mass_T is None else rollout.kept_mass_T
            pairs: list[tuple[str, Any, Any]] = [("old", entry.old_logprobs_GT[i], now.old_GT[i])]
            plain = run.sampling.confidence is None and rollout.inserted_T is None
            if run.engine.same_as_trainer and not run.sampling.greedy and plain:
                pairs.append(("sampler", rollout.sampler_logprobs_T, now.old_GT[i] - np.log(kept_T)))
            if entry.reference_logprobs_GT is not None and now.reference_GT is not None:
                pairs.append(("reference", entry.reference_logprobs_GT[i], now.reference_GT[i]))
            for name, then_T, now_T in pairs:
                if np.isnan(now_T).all():  # not in the loss, so not scored
                    continue
                gap_T = np.abs(then_T - now_T)
                count += len(gap_T)
                largest = max(largest, float(np.nan_to_num(gap_T, nan=math.inf).max(initial=0.0)))
                if not (gap_T <= near).all():
                    t = int(np.argmax(~(gap_T <= near)))
                    differences.append(
                        f"{_place(g, rollout)}, {name} log-prob of token {t}: {then_T[t]:.6f} was logged, "
                        f"{now_T[t]:.6f} computed"
                    )
    return Part(
        name="log-probs",
        said=f"{count} computed with the weights before the step; the largest gap is {largest:.1e} nats",
        differences=differences,
    )


def _near(run: Run) -> float:
    """How far log-probs, and what follows from them, may differ; see ROUNDED."""
    rounding = run.at_start.get("precision/gap_abs_max")
    return max(ROUNDED, 0.0 if rounding is None else 2 * rounding.value)


def _updates(run: Run, groups: Sequence[TrainingGroup], logged: Mapping[str, float], step: int) -> Part:
    """Every update of the step made again, and the metrics that follow from them."""
    from groupwise.health.metric import Metric, combine, values
    from groupwise.training.batch import mini_batches

    run.apply(step - 1)
    # The schedule may be of more steps than are known here, and may have been changed since.
    run.optimizer.set_rate(logged.get("training/learning_rate", run.optimizer.rate))
    if run.critic is not None:
        run.critic.optimizer.set_rate(logged.get("critic/learning_rate", run.critic.optimizer.rate))
    rows = run.updater.rows(groups)
    config = run.config.training
    measured: list[Mapping[str, Metric]] = []
    for i, part in enumerate(mini_batches(rows, config.mini_batches) * config.updates_per_batch):
        measured.append(run.update(part, step, first=i == 0))
    found = {
        **values(combine(measured)),
        "kl/beta": run.kl.beta,
        "sampler/temperature": run.temperature.value,
        "training/updates": float(run.updater.updates),
    }
    names, differences = _compared(found, logged, _near(run))
    loss = f", the loss {found['policy/loss']:.6g}" if "policy/loss" in found else ""
    return Part(
        name="updates",
        said=f"{len(measured)} made again: {names} metrics computed{loss}",
        differences=differences,
    )


def _compared(found: Mapping[str, float], logged: Mapping[str, float], share: float) -> tuple[int, list[str]]:
    """How many metrics are in both, and a sentence on each that differs."""
    names = sorted(name for name in found if name in logged and not name.startswith(_WORK))
    return len(names), [
        f"{name}: {_shown(logged[name])} was logged, {_shown(found[name])} computed"
        for name in names
        if not _alike(logged[name], found[name], share)
    ]


def _answers(entry: TrainingGroup) -> Iterator[tuple[Rollout, Verdict]]:
    """Every scored response of a group, in the order in which they were scored."""
    yield from zip(entry.group.rollouts_G, entry.group.verdicts_G, strict=True)
    if entry.group.greedy is not None:
        yield entry.group.greedy.rollout, entry.group.greedy.verdict


def _alike(then: float | None, now: float | None, share: float) -> bool:
    if then is None or now is None:
        return then is now
    if not (math.isfinite(then) and math.isfinite(now)):
        return then == now or (math.isnan(then) and math.isnan(now))
    return abs(then - now) <= share * max(1.0, abs(then))


def _place(group: int, rollout: Rollout) -> str:
    return f"group {group}, rollout {rollout.group_index}"


def _shown(number: float | None) -> str:
    return "none" if number is None else f"{number:.10g}"
