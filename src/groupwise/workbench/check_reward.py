"""Rewards examined on rows, on a model's completions or on the rollouts of a run."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from groupwise.config import LoadedConfig, load
from groupwise.config.run import RunConfig
from groupwise.errors import ConfigError, DataError, RunFolderError
from groupwise.prompts.encode import columns_for_rewards, messages_of
from groupwise.prompts.load import Row, check_rows, read_rows
from groupwise.prompts.sources import read_sources
from groupwise.records import Group, Prompt, Rollout
from groupwise.records.metrics_file import read_metrics
from groupwise.records.rollout_file import read_rollouts
from groupwise.records.run_folder import RunFolder, read_manifest
from groupwise.registry import file_of
from groupwise.rewards import Rewards, build
from groupwise.rewards.completions import text_of
from groupwise.rewards.examine import Asked, Item, Measured, measure
from groupwise.rewards.findings import Finding, findings
from groupwise.rewards.made_up import Case
from groupwise.rollouts.engine import Sampling
from groupwise.workbench.examined import Examined
from groupwise.workbench.score import check_needs, configured
from groupwise.workbench.trial import load_trial, model_words

STEP_SECONDS = 10.0
"""What a step is taken to need beside its rewards, where nothing better is known."""
_USUAL_ANSWERS = (
    "answer",
    "solution",
    "reference",
    "target",
    "label",
    "gold",
    "expected",
    "output",
    "response",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is to be examined, and on what."""

    reward: str
    """A scorer's name, `module:function`, `file.py:function`, a configuration file, or a run folder."""
    data: Path | None = None
    """A JSONL file; None for the configuration's held-out or training rows, or the run's prompts."""
    overrides: Sequence[str] = ()
    """`key=value` of the configuration."""
    settings: Sequence[str] = ()
    """`key=value` of the one reward."""
    columns: Sequence[str] = ()
    """`argument=column` of the one reward."""
    model: str | None = None
    """A model to sample completions from."""
    run: Path | None = None
    """A run folder to take rollouts from."""


def check_reward(
    source: Source,
    *,
    answer: str | None = None,
    has_answers: bool = True,
    form: str | None = None,
    rows: int = 16,
    repeats: int = 3,
    step_seconds: float | None = None,
) -> Examined:
    """Examine rewards as a run would use them: the same `build`, the same call, the same combination by weight.

    Args:
        source: which rewards, and on what.
        answer: the column with a right answer; None to look for one.
        has_answers: False for rewards about style, for which no answer is right.
        form: a template with `{answer}` in which right answers are to stand; None to find one.
        rows: how many rows are taken, spread evenly over the data.
        repeats: how often the same batch is asked about.
        step_seconds: what a step takes without its rewards; None for that of the run, of sampling with the model, or
            `STEP_SECONDS`.

    Raises:
        GroupwiseError: one sentence naming the place and the remedy.
    """
    loaded, run = _open(source)
    rewards = build(loaded.config.rewards, base=loaded.base)
    groups = [] if run is None else _groups_of(run, rows)
    if source.data is None and groups:
        prompts = [group.prompt for group in groups]
        chosen, data = _once(prompts), f"the prompts of {run}"
        there = len(chosen)
        rewards.check_rows([(prompt.id, prompt.columns) for prompt in chosen], data)
        said = [(prompt.columns, prompt.text) for prompt in chosen]
        column = answer if answer is not None else _answer_column(rewards, said)
        cases = [_case_of(prompt, column if has_answers else None) for prompt in chosen]
    else:
        read, data, there = _rows(loaded, source.data, rows)
        if source.data is not None and len(loaded.config.rewards) == 1:
            check_needs(rewards, [row.columns for row in read], source.data, source.columns)
        rewards.check_rows([(row.place, row.columns) for row in read], data)
        said = [(row.columns, text_of(row.columns[loaded.config.prompts.columns.prompt])) for row in read]
        column = answer if answer is not None else _answer_column(rewards, said)
        cases = _cases(read, loaded.config, column if has_answers else None)
    if answer is not None:
        _check_answers(cases, answer, data)
    if form is not None:
        _check_form(form, cases)
    sampled = _items(groups, len(cases))
    if source.model is not None:
        more, seconds = _sample(loaded, source.model, source.data, rows, len(cases) + len(groups))
        sampled += more
        step_seconds = seconds if step_seconds is None else step_seconds
    if step_seconds is None:
        step_seconds = STEP_SECONDS if run is None else _seconds_of(run)
    rollout = loaded.config.rollout
    try:
        measured = measure(
            rewards,
            cases,
            sampled=sampled,
            form=form,
            repeats=repeats,
            rollouts_per_step=rollout.prompts_per_step * rollout.group_size,
            step_seconds=step_seconds,
        )
    finally:
        rewards.close()
    found = [*findings(measured), *_against_record(groups, measured)]
    return Examined(
        weighted=rewards.weighted,
        data=data,
        rows_there=there,
        sampled_from=source.model if source.model is not None else None if run is None else str(run),
        answer_column=column if any(case.answer is not None for case in cases) else None,
        measured=measured,
        found=found,
    )


def files_read(source: Source) -> list[Path]:
    """The user's files that `check_reward` reads, a model's and a run's aside."""
    path = Path(source.reward)
    code = file_of(source.reward, base=Path.cwd())
    return [
        *([] if source.data is None else [source.data]),
        *([path] if path.is_file() else []),
        *filter(None, [code]),
    ]


def _open(source: Source) -> tuple[LoadedConfig, Path | None]:
    """The configuration, every reward with the policy `drop`, and the run folder that is meant."""
    path, run = Path(source.reward), source.run
    if path.is_dir():
        if not (path / "config.yaml").is_file():
            raise RunFolderError(f"{path} is a folder without config.yaml, so it is not a run folder")
        path, run = path / "config.yaml", run or path
    if path.suffix.lower() not in (".yaml", ".yml"):
        return configured(source.reward, source.settings, source.columns, source.overrides), run
    if source.settings or source.columns:
        raise ConfigError(
            "--set and --column are for a reward that is named alone; a configuration has settings and columns of its "
            "own, such as rewards.0.settings.tolerance=1"
        )
    loaded = load(path, source.overrides)
    if not loaded.config.rewards:
        raise ConfigError(f"{path.name}: rewards is empty, so there is nothing to examine; name a scorer")
    dropping = tuple(
        reward.model_copy(update={"on_failure": "drop", "failure_value": None})
        for reward in loaded.config.rewards
    )
    return replace(loaded, config=loaded.config.model_copy(update={"rewards": dropping})), run


def _rows(loaded: LoadedConfig, data: Path | None, count: int) -> tuple[list[Row], str, int]:
    """Some of the rows, spread evenly; where they came from, and how many there are."""
    prompts = loaded.config.prompts
    if data is not None:
        rows = read_rows(data, source=str(data))
    elif prompts.held_out or prompts.train:
        rows = read_sources(prompts.held_out or prompts.train, loaded.base).rows
    else:
        raise ConfigError("there are no rows to examine the reward on; name a JSONL file with --data")
    check_rows(rows, prompts)
    return _spread_over(rows, count), rows[0].source, len(rows)


def _spread_over(rows: Sequence[Any], count: int) -> list[Any]:
    return [rows[i * len(rows) // count] for i in range(count)] if len(rows) > count else list(rows)


def _cases(rows: Sequence[Row], config: RunConfig, column: str | None) -> list[Case]:
    columns = columns_for_rewards(rows, config.prompts)
    cases = []
    for row, own in zip(rows, columns, strict=True):
        messages = messages_of(row, config.prompts)
        prompt: Any = row.columns[config.prompts.columns.prompt] if messages is None else list(messages)
        cases.append(Case(place=row.place, prompt=prompt, columns=own, answer=_answer(row.columns, column)))
    return cases


def _case_of(prompt: Prompt, column: str | None) -> Case:
    asked: Any = prompt.text if prompt.messages is None else list(prompt.messages)
    return Case(place=prompt.id, prompt=asked, columns=prompt.columns, answer=_answer(prompt.columns, column))


def _once(prompts: Sequence[Prompt]) -> list[Prompt]:
    return list({prompt.id: prompt for prompt in prompts}.values())


def _answer_column(rewards: Rewards, said: Sequence[tuple[Mapping[str, Any], str]]) -> str | None:
    """What the rewards need and is usually an answer, then what is usually one, then what the rewards need.

    Args:
        rewards: all of them.
        said: the columns of each row, and its question as text.
    """
    rows, asked = [columns for columns, _ in said], [text for _, text in said]
    needed = [column for columns in rewards.needs.values() for column in columns]
    usual = [*(name for name in _USUAL_ANSWERS if name in needed), *_USUAL_ANSWERS]
    # A list that is called otherwise is more likely one of tests or of words to mention.
    others = [name for name in needed if not any(isinstance(row.get(name), list | tuple) for row in rows)]
    # What the question says is more likely its subject than its answer.
    others.sort(key=lambda name: _said_share(rows, asked, name))
    for column in (*usual, *others):
        if any(_answer(row, column) is not None for row in rows):
            return column
    return None


def _said_share(rows: Sequence[Mapping[str, Any]], asked: Sequence[str], column: str) -> float:
    """The share of rows whose question has the column's value as words of it, of those with a value."""
    there = [(said, text) for row, text in zip(rows, asked, strict=True) if (said := _answer(row, column))]
    hits = sum(bool(re.search(rf"(?<!\w){re.escape(said)}(?!\w)", text, re.I)) for said, text in there)
    return hits / len(there) if there else 1.0


def _answer(row: Mapping[str, Any], column: str | None) -> str | None:
    """The right answer of a row as text, the first where there are several; None where there is none."""
    value = None if column is None else row.get(column)
    if isinstance(value, list | tuple) and value:
        value = value[0]
    if isinstance(value, str):
        return value.strip() or None
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _check_form(form: str, cases: Sequence[Case]) -> None:
    if "{answer}" not in form:
        raise ConfigError(f"--form {form!r} does not say where the answer goes; write {{answer}} there")
    others = (name for case in cases for name in case.columns if name != "answer" and f"{{{name}}}" in form)
    other = next(others, None)
    if other is not None:
        raise ConfigError(
            f"--form {form!r} names the column {other!r}, but {{answer}} alone is filled in; put the right answer as "
            "it is written out into a column of its own, and name that with --answer"
        )


def _check_answers(cases: Sequence[Case], column: str, data: str) -> None:
    if all(case.answer is None for case in cases):
        there = dict.fromkeys(name for case in cases for name in case.columns)
        raise DataError(
            f"{data}: --answer {column}: no row has text or a number in that column; there are {', '.join(there)}"
        )


def _groups_of(run: Path, count: int) -> list[Group]:
    """The last groups of a run, at most `count`."""
    folder = RunFolder(run)
    read_manifest(folder)
    files = sorted(folder.rollouts_dir.glob("step-*.parquet"))
    if not files:
        raise RunFolderError(f"{run} has no rollouts to examine; was the run started with run.save_rollouts?")
    groups: list[Group] = []
    for file in reversed(files):
        groups = [*(entry.group for entry in read_rollouts(file)), *groups]
        if len(groups) >= count:
            break
    return groups[-count:]


def _items(groups: Sequence[Group], first: int) -> list[Item]:
    """The rollouts of groups, numbered from `first` on."""
    return [
        _sampled(number, group.prompt, rollout)
        for number, group in enumerate(groups, start=first)
        for rollout in group.rollouts_G
    ]


def _sampled(number: int, prompt: Prompt, rollout: Rollout) -> Item:
    return Item(
        group=number,
        kind="sampled",
        name="sampled",
        prompt=prompt.text if prompt.messages is None else list(prompt.messages),
        text=rollout.text,
        columns=prompt.columns,
        token_ids=rollout.token_ids_T.tolist(),
        stop_reason=rollout.stop_reason.value,
    )


def _sample(
    loaded: LoadedConfig, model: str, data: Path | None, count: int, first: int
) -> tuple[list[Item], float]:
    """Groups sampled for some rows, and what sampling a step takes at that pace, in seconds."""
    rows, _, _ = _rows(loaded, data, count)
    with_model = load(loaded, model_words(model))
    rollout = with_model.config.rollout
    trial = load_trial(with_model, rows, new_tokens=rollout.max_new_tokens)
    started = time.perf_counter()
    sampled_PG = trial.engine.generate(
        trial.prompts,
        Sampling.of(rollout),
        group_size=rollout.group_size,
        seed=(with_model.config.run.seed, 0),
    )
    seconds = time.perf_counter() - started
    items = [
        _sampled(number, prompt, each)
        for number, (prompt, rollouts) in enumerate(zip(trial.prompts, sampled_PG, strict=True), start=first)
        for each in rollouts
    ]
    return items, seconds * rollout.prompts_per_step / len(trial.prompts)


def _seconds_of(run: Path) -> float:
    """The median step of a run less its rewards."""
    lines = read_metrics(RunFolder(run).metrics_file)
    seconds = sorted(
        line["time/step_seconds"] - line.get("time/reward_seconds", 0.0)
        for line in lines
        if line["step"] > 0 and "time/step_seconds" in line
    )
    return seconds[len(seconds) // 2] if seconds else STEP_SECONDS


def _against_record(groups: Sequence[Group], measured: Measured) -> list[Finding]:
    """Whether the rewards say of a run's rollouts what they said in the run."""
    sampled: list[Asked] = measured.of_kind("sampled")
    recorded = [verdict for group in groups for verdict in group.verdicts_G]
    differing = compared = 0
    for was, now in zip(recorded, sampled, strict=False):
        for label, value in now.verdict.parts.items():
            before = was.parts.get(label)
            if value is not None and before is not None:
                compared += 1
                differing += abs(value - before) > 1e-9 * max(1.0, abs(before))
    if not differing:
        return []
    return [
        Finding(
            name="differs_from_record",
            level="warning",
            says=f"{differing} of {compared} values differ from those recorded in the run under the same name: the "
            "reward has changed since, or does not repeat itself",
        )
    ]
