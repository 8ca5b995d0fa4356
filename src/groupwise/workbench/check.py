"""What can be said of a run before its model is loaded: the arithmetic of a batch, and a trial of the rewards."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.config import LoadedConfig, RunConfig
from groupwise.config.combinations import warnings
from groupwise.config.ranges import questions
from groupwise.errors import ConfigError, RunFolderError
from groupwise.model.find import EMBEDDED, TINY, find_model
from groupwise.objective.estimator import Evidence
from groupwise.prompts.encode import columns_for_rewards, messages_of
from groupwise.prompts.load import Row
from groupwise.records import Verdict
from groupwise.records.run_folder import refuse
from groupwise.rewards.reward import Batch
from groupwise.training.inputs import Inputs, by_source
from groupwise.training.ordering import order_of, steps_of
from groupwise.workbench.preferences import PreferenceInputs

NO_ANSWER = "I do not know."
"""The second made-up completion; the first is what the row holds for a reward to read."""


def check(inputs: Inputs) -> list[str]:
    """What people want to know of a configuration before they start, as lines.

    Args:
        inputs: configuration, data and rewards, checked by being read.

    Raises:
        ModelError: the model is not one of ours and not a folder, where it can only be a folder.
        RewardError: a reward failed on a made-up completion.
        ConfigError: an advantage estimator of somebody's own failed on made-up rewards.
    """
    config = inputs.config
    lines = [
        _line("model", _model(inputs.loaded)),
        _line("batch", batch_arithmetic(config)),
        _line("", micro_batch_arithmetic(config)),
        _line("training data", _data(inputs)),
    ]
    if inputs.held_out:
        lines.append(_line("held out", _held_out(inputs)))
    lines += [_line("", notice) for notice in inputs.notices]
    trial, asked = _trial(inputs)
    lines += [_line("rewards", _rewards(inputs)), *trial, *_estimated(inputs)]
    return lines + _ending(inputs.loaded, [*asked, *_nulls(inputs)])


def check_pairs(inputs: PreferenceInputs) -> list[str]:
    """The same for training on preference pairs.

    Args:
        inputs: configuration and pairs, checked by being read.

    Raises:
        ModelError: the model is not one of ours and not a folder, where it can only be a folder.
    """
    config = inputs.config
    per_step, training = config.dpo.pairs_per_step, config.training
    budget = (
        f"A forward pass takes at most {training.micro_batch_tokens} tokens (training.micro_batch_tokens)"
    )
    lines = [
        _line("model", _model(inputs.loaded)),
        _line("batch", f"{per_step} pairs x 2 responses = {2 * per_step} responses, one update per batch"),
        _line("", f"{budget}, each prompt once; a pair is never split."),
        _line("training data", _data_of(inputs.train, per_step, config, "pair")),
    ]
    if inputs.held_out:
        rows = min(len(inputs.held_out), config.evaluate.prompts or len(inputs.held_out))
        text = f"{_named(inputs.held_out)}: {len(inputs.held_out)} rows; {rows} pairs, {_times(config)}"
        lines.append(_line("held out", text))
    lines += [_line("", notice) for notice in inputs.notices]
    row = inputs.train[0]
    for name, column in (("chosen", config.dpo.chosen), ("rejected", config.dpo.rejected)):
        lines.append(
            _line("first pair" if name == "chosen" else "", f"{name}: {_short(row.columns[column])}")
        )
    return lines + _ending(inputs.loaded, [])


def _ending(loaded: LoadedConfig, asked: Sequence[str]) -> list[str]:
    """Questions, what the run folder says, and that all is fine."""
    config = loaded.config
    every = [*asked, *warnings(config).values(), *questions(config)]
    lines = [_line("question" if i == 0 else "", question) for i, question in enumerate(every)]
    try:
        refuse(Path(config.run.dir) if config.run.dir else None, overwrite=config.run.overwrite)
    except RunFolderError as error:
        lines.append(_line("note", str(error)))
    return [*lines, f"{_called(loaded)} is fine"]


def batch_arithmetic(config: RunConfig) -> str:
    """How many rollouts a step has and how they are divided, in words."""
    rollout, training = config.rollout, config.training
    count = rollout.prompts_per_step * rollout.group_size
    text = f"{rollout.prompts_per_step} prompts x {rollout.group_size} rollouts = {count} rollouts"
    per_update = math.ceil(count / training.mini_batches)
    if training.mini_batches > 1:
        about = "" if count % training.mini_batches == 0 else "at most "
        text += f", {training.mini_batches} mini-batches of {about}{per_update}"
    limit = training.micro_batch_rollouts
    if limit is not None:
        micro = math.ceil(per_update / limit)
        each = f"{limit} rollouts" if training.mini_batches > 1 else f"{limit}"
        if micro == 1:
            text += ", one micro-batch" + (" each" if training.mini_batches > 1 else "")
        else:
            text += f", {micro} micro-batches of {'at most ' if per_update % limit else ''}{each}"
            text += " each" if training.mini_batches > 1 else ""
    updates = training.mini_batches * training.updates_per_batch
    if updates == 1:
        return f"{text}, one update per batch"
    passes = f"{training.updates_per_batch} pass{'es' if training.updates_per_batch > 1 else ''}"
    return f"{text}, {updates} updates per batch ({passes} x {training.mini_batches} mini-batches)"


def micro_batch_arithmetic(config: RunConfig) -> str:
    """What the budget of tokens means for rollouts, as a sentence; the prompts' lengths are not known here."""
    rollout, training = config.rollout, config.training
    budget, longest = training.micro_batch_tokens, rollout.max_new_tokens
    count = math.ceil(rollout.prompts_per_step * rollout.group_size / training.mini_batches)
    prompt = config.prompts.max_prompt_tokens
    rule = f"A forward pass takes at most {budget} tokens (training.micro_batch_tokens), each group's prompt once"
    if count * longest <= budget:
        sentence = f"{rule}; {count} responses of at most {longest} tokens are {count * longest} of them."
    else:
        full = max(1, budget // longest)
        sentence = (
            f"{rule}: at most {full} response{'s' if full > 1 else ''} of the full {longest}, so at least "
            f"{math.ceil(count / full)} passes for {count} such responses, and fewer for shorter ones."
        )
    if prompt is not None:
        safe = max(1, budget // (longest + prompt))
        sentence += (
            f" With prompts of at most {prompt} tokens it takes at least {safe}, so at most "
            f"{math.ceil(count / safe)} pass{'es' if count > safe else ''}."
        )
    return sentence


def _called(loaded: LoadedConfig) -> str:
    origins = {o for o in loaded.origins.values() if o not in ("default", "command line")}
    files = sorted(o for o in origins if not o.startswith("preset ") and o != "rollout.max_new_tokens")
    return files[0] if files else "the configuration"


def _line(title: str, text: str) -> str:
    return f"{title:<14}  {text}"


def _model(loaded: LoadedConfig) -> str:
    name, base = loaded.config.model.name, loaded.base
    # A hub id is left to the run: looking it up needs the network, which this machine may not have.
    local = name in (EMBEDDED, TINY) or name.startswith((".", "/", "~")) or name.endswith(".gguf")
    try:
        local = local or any((root / name).exists() for root in (base, Path.cwd()))
    except OSError:
        local = True  # it may not be looked at, and find_model says so
    if local:
        find_model(name, base, revision=loaded.config.model.revision)
        return f"{name}: it is there, and not loaded here"
    return f"{name}: taken for a hub id, and not looked up here"


def _data(inputs: Inputs) -> str:
    return _data_of(inputs.train, inputs.config.rollout.prompts_per_step, inputs.config, "prompt")


def _data_of(train: Sequence[Row], per_step: int, config: RunConfig, what: str) -> str:
    rows, drop_last = len(train), config.prompts.drop_last
    order = order_of(config, [row.source for row in train], per_step)
    epoch = order.steps_per_epoch
    text = f"{_named(train)}: {_count(rows, 'row')}, {_count(epoch, 'step')} an epoch"
    rest = rows % per_step
    if rest:
        text += (
            f" ({_count(rest, 'row')} a time left out)"
            if drop_last
            else f" (the last has {_count(rest, what)})"
        )
    steps = steps_of(config, order)
    if config.training.steps is not None:
        return f"{text}; {_count(steps, 'step')} {'is' if steps == 1 else 'are'} {_count(steps / epoch, 'epoch')}"
    epochs = config.training.epochs or 1.0
    return f"{text}; {_count(epochs, 'epoch')}: {_count(steps, 'step')}"


def _count(number: float, what: str) -> str:
    text = f"{number:.3g}" if number < 1000 else f"{number:.0f}"
    return f"{text} {what}{'' if text == '1' else 's'}"


def _named(rows: Sequence[Row]) -> str:
    """The sources of some rows; how many of them each has, where there are several."""
    counts = Counter(row.source for row in rows)
    if len(counts) == 1:
        return rows[0].source
    return ", ".join(f"{source} ({count})" for source, count in counts.items())


def _held_out(inputs: Inputs) -> str:
    chosen = inputs.config.evaluate
    rows = min(len(inputs.held_out), chosen.prompts or len(inputs.held_out))
    manner = (
        "greedy response" if chosen.temperature == 0 else f"response at temperature {chosen.temperature:g}"
    )
    return (
        f"{_named(inputs.held_out)}: {len(inputs.held_out)} rows; {rows} prompts x {chosen.samples} {manner}, "
        f"{_times(inputs.config)}; a total reward of {chosen.pass_reward:g} passes{_judged_by(inputs)}"
    )


def _judged_by(inputs: Inputs) -> str:
    """The rewards of evaluation, where they are others than those of training."""
    if inputs.evaluation is inputs.rewards:
        return ""
    return f", judged by {', '.join(label for label, _ in inputs.evaluation.weighted)}"


def _times(config: RunConfig) -> str:
    """When held-out data is measured."""
    chosen, times = config.evaluate, []
    if chosen.at_start:
        times.append("before")
    if chosen.every_steps is not None:
        times.append(f"every {chosen.every_steps} steps")
    if chosen.at_end:
        times.append("after")
    return ", ".join(times) or "never measured"


def _rewards(inputs: Inputs) -> str:
    return ", ".join(f"{label} (weight {weight:g})" for label, weight in inputs.rewards.weighted)


def _trial(inputs: Inputs) -> tuple[list[str], list[str]]:
    """Two made-up completions for the first row of each file: what the rewards say of them, and what that asks."""
    config, lines, asked = inputs.config, [], []
    held_out = replace(inputs, rewards=inputs.evaluation)
    for rows, judged in ((inputs.train, inputs), (inputs.held_out, held_out)):
        for row in rows[:1]:
            completions = [answer_in(row, judged), NO_ANSWER]
            verdicts = score_texts(judged, row, completions)
            lines.append(_line("trial", f"{row.place}, with made-up completions:"))
            for completion, verdict in zip(completions, verdicts, strict=True):
                lines.append(_line("", f"{_short(completion)}  {said_of(verdict)}"))
            asked += _silent(judged, row, verdicts)
            if judged is held_out:
                asked += _out_of_reach(config.evaluate.pass_reward, row, verdicts)
    return lines, asked


def _estimated(inputs: Inputs) -> list[str]:
    """What an estimator of somebody's own says of made-up rewards: of a group where they differ, and one where not."""
    config = inputs.config
    advantage = config.objective.advantage
    inner = advantage.settings.get("of")
    inner = inner.get("name", "") if isinstance(inner, Mapping) else inner
    if ":" not in advantage.name and ":" not in str(inner):
        return []
    size, groups = config.rollout.group_size, max(2, config.rollout.prompts_per_step)
    # By token it may be that groups of equal rewards are left out before an estimator sees them.
    flat = config.objective.zero_spread == "keep" or not inputs.estimate.by_token
    rewards_N = np.tile(np.arange(size) % 2, groups).astype(np.float64)
    rewards_N[size : 2 * size] = 1.0 if flat else rewards_N[:size]
    lengths_N = np.arange(groups * size) % 2 + 2
    rewards_NT = tuple(
        np.append(np.zeros(length - 1), r) for r, length in zip(rewards_N, lengths_N, strict=True)
    )
    made_up = Evidence(
        rewards_N=rewards_N,
        rewards_NT=rewards_NT,
        task_rewards_N=rewards_N,
        task_rewards_NT=rewards_NT,
        groups_N=np.repeat(np.arange(groups), size),
        lengths_N=lengths_N,
        values_NT=tuple(np.zeros(length) for length in lengths_N),
        greedy_rewards_N=np.repeat(0.5, groups * size),
    )
    try:
        with np.errstate(all="ignore"):
            given = inputs.estimate(made_up)
            if "values" in inputs.estimate.needs:
                inputs.estimate.targets(made_up)
    except ValueError as error:
        raise ConfigError(f"objective.advantage, tried on made-up rewards: {error}") from error
    most, rest = min(size, 4), " ..." if size > 4 else ""
    lines = [_line("advantage", f"{inputs.estimate.name}, of made-up rewards:")]
    for start in (0, size):
        rewards = "  ".join(f"{r:g}" for r in rewards_N[start : start + most])
        advantages = "  ".join(f"{advantages_T.mean():.3g}" for advantages_T in given[start : start + most])
        lines.append(_line("", f"a group of {rewards}{rest} gets {advantages}{rest}"))
    return lines


def _silent(inputs: Inputs, row: Row, verdicts: list[Verdict]) -> list[str]:
    """Rewards that have nothing to say of a row whatever the completion, which is mostly a slip in its columns."""
    needs = inputs.rewards.needs
    if all(verdict.reward is None for verdict in verdicts):
        columns = list(dict.fromkeys(column for needed in needs.values() for column in needed))
        remedy = _look_at(row, columns) or "check what the rewards return"
        return [f"no reward applies to {row.place}, whatever the completion: {remedy}. Is it meant?"]
    return [
        f"the reward {label!r} does not apply to {row.place}, whatever the completion: {_look_at(row, needed)}. "
        "Is it meant?"
        for label, needed in needs.items()
        if needed and all(verdict.parts[label] is None for verdict in verdicts)
    ]


def _nulls(inputs: Inputs) -> list[str]:
    """Columns that a reward needs and that some rows of a source hold null in, where others of it do not.

    A source without a single value is meant: that is how rows say that a reward is not for them.
    """
    asked = []
    for rows, rewards in ((inputs.train, inputs.rewards), (inputs.held_out, inputs.evaluation)):
        readers: dict[str, list[str]] = {}
        for label, needed in rewards.needs.items():
            for column in needed:
                readers.setdefault(column, []).append(repr(label))
        for source, own in by_source(rows).items():
            for column, labels in readers.items():
                empty = [row for row in own if row.columns.get(column) is None]
                if 0 < len(empty) < len(own):
                    who = (
                        f"reward {labels[0]} needs"
                        if len(labels) == 1
                        else f"rewards {' and '.join(labels)} need"
                    )
                    asked.append(
                        f"the column {column!r}, which the {who}, is null in "
                        f"{len(empty)} of {len(own)} rows of {source}, the first of which is {empty[0].place}. Is it "
                        "meant?"
                    )
    return asked


def _out_of_reach(passes: float, row: Row, verdicts: list[Verdict]) -> list[str]:
    """A response that is paid most of what passes, and not all, since a penalty is taken off."""
    best, taken = verdicts[0].reward, min(verdicts[0].terms.values(), default=0.0)
    if best is None or taken >= 0 or not passes / 2 <= best < passes:
        return []
    return [
        f"the made-up answer to {row.place} gets {best:g}, but only {passes:g} or more passes (evaluate.pass_reward), "
        "so held-out pass@1 may stay at 0; lower it, or name the deciding reward in evaluate.rewards. Is it meant?"
    ]


def _look_at(row: Row, columns: Sequence[str]) -> str:
    held = [f"{column!r}, which holds {row.columns.get(column)!r:.60}" for column in columns]
    return f"check the column {' and '.join(held)}" if held else ""


def answer_in(row: Row, inputs: Inputs) -> str:
    """A completion that ought to be worth something: the first text or number that a reward reads from the row."""
    read = [column for needed in inputs.rewards.needs.values() for column in needed]
    others = [name for name in row.columns if name not in (inputs.config.prompts.columns.prompt, *read)]
    for column in (*read, *others):
        value = row.columns.get(column)
        if isinstance(value, str | int | float) and not isinstance(value, bool) and str(value).strip():
            return str(value)
    return "Yes."


def score_texts(inputs: Inputs, row: Row, completions: list[str]) -> list[Verdict]:
    """The verdicts on completions of one row, shaped as in training; the bytes of the text stand for its token ids."""
    config = inputs.config.prompts
    messages = messages_of(row, config)
    prompt: Any = row.columns[config.columns.prompt] if messages is None else messages
    answers: list[Any] = list(completions)
    if messages is not None:
        answers = [[{"role": "assistant", "content": text}] for text in completions]
    (columns,) = columns_for_rewards([row], config)
    return inputs.rewards.score_batch(
        Batch(
            prompts=[prompt] * len(completions),
            completions=answers,
            completion_ids=[list(text.encode()) for text in completions],
            stop_reasons=["stop"] * len(completions),
            columns={name: [value] * len(completions) for name, value in columns.items()},
            places=[row.place] * len(completions),
        )
    )


def said_of(verdict: Verdict) -> str:
    """A verdict in words: the reward, its parts, and the failure if there is one."""
    reward = "no reward" if verdict.reward is None else f"reward {verdict.reward:g}"
    parts = ", ".join(f"{k} {'-' if v is None else format(v, 'g')}" for k, v in verdict.parts.items())
    failure = f" ({verdict.failure})" if verdict.failure else ""
    return f"{reward}: {parts}{failure}"


def _short(text: str, limit: int = 60) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= limit else line[: limit - 3] + "...")
