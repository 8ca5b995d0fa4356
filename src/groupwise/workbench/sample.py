"""A group of responses to one prompt, judged as in training."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.config import LoadedConfig, load, yaml
from groupwise.errors import ConfigError
from groupwise.objective.estimator import Estimator
from groupwise.prompts.load import Row
from groupwise.records import Prompt, StopReason
from groupwise.rewards import build
from groupwise.rollouts.collect import collect
from groupwise.rollouts.engine import Sampling
from groupwise.training.advantages import Judged, advantages, judge
from groupwise.training.inputs import Inputs, read_inputs
from groupwise.workbench.score import pairs
from groupwise.workbench.trial import load_trial


def sample_group(
    loaded: LoadedConfig,
    *,
    prompt: str | None = None,
    row: int | None = None,
    held_out: bool = False,
    columns: Sequence[str] = (),
) -> list[str]:
    """Sample a group and show each response with its reward, parts and advantage.

    Args:
        loaded: says which model, rewards and objective, and how to sample.
        prompt: a text to answer; or
        row: the number of a row of `prompts.train`, from 0, as in the ids of prompts.
        held_out: count in `prompts.held_out`.
        columns: `name=value` for the rewards, beside `prompt`.

    Returns:
        Lines for people.

    Raises:
        GroupwiseError: one sentence naming the place and the remedy.
    """
    if (prompt is None) == (row is None):
        raise ConfigError("say what to answer, with --prompt TEXT or --row N, one of them")
    inputs, chosen = (
        _of_text(loaded, prompt, columns) if prompt is not None else _of_row(loaded, row or 0, held_out)
    )
    if row is not None and columns:
        raise ConfigError("--column goes with --prompt; a row has columns of its own")
    config = inputs.config
    trial = load_trial(loaded, [chosen], new_tokens=config.rollout.max_new_tokens)
    collected = collect(
        trial.engine,
        trial.prompts,
        Sampling.of(config.rollout),
        functools.partial(inputs.rewards.score, training=True),  # as a step would, for its advantages
        group_size=config.rollout.group_size,
        seed=(config.run.seed, 0),
    )
    return shown(judge(collected.groups[0], config.objective), inputs.estimate, loaded, trial.notes)


def shown(judged: Judged, estimate: Estimator, loaded: LoadedConfig, notes: Sequence[str] = ()) -> list[str]:
    """A judged group as lines, with what is worth knowing of its prompt."""
    config, group = loaded.config, judged.group
    # What an untrained critic or a greedy rollout would say of one group is not worth sampling for.
    known = None if estimate.needs else advantages([judged], estimate)[0]
    rollout = config.rollout
    lines = [
        f"{config.model.name}: {len(group.rollouts_G)} responses at temperature {rollout.temperature:g}, up to "
        f"{rollout.max_new_tokens} tokens, to",
        *_quoted(_last_turn(group.prompt)),
        *(f"note: {note}" for note in notes),
    ]
    for i, (response, verdict) in enumerate(zip(group.rollouts_G, group.verdicts_G, strict=True)):
        reward = "no reward" if verdict.reward is None else f"reward {verdict.reward:.4g}"
        end = "cut off" if response.stop_reason is StopReason.LENGTH else "ended"
        left_out = "" if judged.in_loss_G[i] else ", left out of the update"
        parts = ", ".join(f"{k} {'-' if v is None else format(v, '.4g')}" for k, v in verdict.parts.items())
        lines += [
            "",
            f"#{i}  {reward} ({parts})  {_advantage(known, i)}{len(response.token_ids_T)} tokens, "
            f"{end}{left_out}",
            *_quoted(response.text),
        ]
        if verdict.failure:
            lines.append(f"    {verdict.failure}")
    if judged.zero_spread:
        lines += ["", "The rewards are all equal, so this group teaches nothing."]
    return lines


def _advantage(known: Sequence[NDArray[np.float64]] | None, i: int) -> str:
    """Of one rollout: a number, or the first and the last where tokens differ."""
    if known is None:
        return ""
    trained = known[i] if len(known[i]) else np.zeros(1)
    first, last = trained[0], trained[-1]
    return f"advantage {first:+.3f}  " if first == last else f"advantage {first:+.3f} to {last:+.3f}  "


def _quoted(text: str) -> list[str]:
    return [f"  | {line}" for line in text.splitlines() or [""]]


def _last_turn(prompt: Prompt) -> str:
    return prompt.text if prompt.messages is None else str(prompt.messages[-1]["content"])


def _of_text(loaded: LoadedConfig, prompt: str, columns: Sequence[str]) -> tuple[Inputs, Row]:
    given = {
        key: yaml.parse(value, place=f"--column {key}") for key, value in pairs(columns, "--column").items()
    }
    named = loaded.config.prompts.columns
    row: dict[str, Any] = {named.prompt: prompt, **given}
    for optional in (named.system, named.history, named.max_new_tokens):
        if optional is not None:
            row.setdefault(optional, None)
    words = ["prompts.train=null", "prompts.held_out=null", "evaluate.every_steps=null"]
    alone = load(loaded, words, base=loaded.base)
    for label, needed in (
        build(loaded.config.rewards, base=loaded.base).needs.items() if loaded.config.rewards else ()
    ):
        for column in needed:
            if column not in row:
                raise ConfigError(
                    f"the reward {label!r} needs the column {column!r} beside the prompt; give it with --column "
                    f"{column}=VALUE, or sample a row of the data with --row"
                )
    inputs = read_inputs(alone, train=[row])
    return inputs, inputs.train[0]


def _of_row(loaded: LoadedConfig, number: int, held_out: bool) -> tuple[Inputs, Row]:
    inputs = read_inputs(loaded)
    rows = inputs.held_out if held_out else inputs.train
    if not rows:
        raise ConfigError("prompts.held_out is missing, so it has no rows; leave --held-out out")
    if number >= len(rows):
        raise ConfigError(f"--row {number}: {rows[0].source} has rows 0 to {len(rows) - 1}")
    return inputs, rows[number]
