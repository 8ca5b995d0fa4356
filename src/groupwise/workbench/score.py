"""Any reward on a file of completions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.config import LoadedConfig, load, yaml
from groupwise.errors import ConfigError, DataError
from groupwise.prompts.load import read_rows
from groupwise.records import Verdict
from groupwise.registry import file_of, nearest
from groupwise.rewards import Rewards, build
from groupwise.rewards.score_file import score_rows
from groupwise.workbench.outfile import STDOUT, replacing


def score_to_file(
    reward: str, file: Path, output: Path, *, settings: Sequence[str] = (), columns: Sequence[str] = ()
) -> list[str]:
    """Score every row of a file and write `reward`, `parts` and `failure`, one line per row in the same order.

    A row that the reward fails on is written with the reward null; only a reward that fails on all of them is an
    error. Other fields of the row are not repeated.

    Args:
        reward: a scorer's name, `module:function` or `file.py:function`, looked up from the working folder.
        file: JSONL with `prompt`, `completion` and the columns that the reward reads.
        output: JSONL to write, see `replacing`; neither `file` nor the file of the reward.
        settings: `key=value` of the reward.
        columns: `argument=column` where these differ.

    Returns:
        A summary for people, as lines.

    Raises:
        ConfigError, DataError, RewardError: names the place and the remedy.
    """
    loaded = configured(reward, settings, columns)
    rewards = build(loaded.config.rewards, base=loaded.base)
    rows = [row.columns for row in read_rows(file)]
    check_needs(rewards, rows, file, columns)
    code = file_of(reward, base=Path.cwd())
    with replacing(output, inputs=[file] if code is None else [file, code]) as out:
        verdicts = score_rows(rewards, rows, place=file.name)
        for verdict in verdicts:
            line = {"reward": verdict.reward, "parts": dict(verdict.parts), "failure": verdict.failure}
            out.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
    return [_summary(verdicts), *([] if output == STDOUT else [f"wrote {output}"])]


def configured(
    reward: str, settings: Sequence[str] = (), columns: Sequence[str] = (), overrides: Sequence[str] = ()
) -> LoadedConfig:
    """A configuration with one reward, whose failures leave out the rollout and end nothing.

    What `rewards[0]` is in a configuration is an option of the command here, and errors are told in these words.

    Args:
        reward: a scorer's name, `module:function` or `file.py:function`, looked up from the working folder.
        settings: `key=value` of the reward.
        columns: `argument=column` where these differ.
        overrides: `key=value` of the rest of the configuration.

    Raises:
        ConfigError: there is no such reward, or it has no such setting or column.
    """
    entry = {
        "name": reward,
        "settings": {k: yaml.parse(v, place=f"--set {k}") for k, v in pairs(settings, "--set").items()},
        "columns": pairs(columns, "--column"),
        "on_failure": "drop",
    }
    try:
        loaded = load({"rewards": [entry]}, overrides)
        build(loaded.config.rewards, base=loaded.base)
    except ConfigError as error:
        said = str(error).removeprefix("configuration: ").removeprefix("rewards[0]: ")
        said = re.sub(r"^rewards\[0\] \((\w+)\): ", r"\1: ", said)
        said = said.replace("rewards[0].settings", "--set").replace("rewards[0].columns", "--column")
        raise ConfigError(said) from error.__cause__
    return loaded


def check_needs(
    rewards: Rewards, rows: Sequence[Mapping[str, Any]], file: Path, columns: Sequence[str] = ()
) -> None:
    """Find out whether the rows hold what the rewards need, and name the option that helps.

    Args:
        rewards: as `build` made them.
        rows: the columns of each row.
        file: where they are from.
        columns: `argument=column` as given for the reward.

    Raises:
        DataError: no row has a column that a reward needs.
    """
    there = dict.fromkeys(name for row in rows for name in row)
    argument_of = {column: argument for argument, column in pairs(columns, "--column").items()}
    for label, needed in rewards.needs.items():
        for column in needed:
            if column not in there:
                near = nearest(column, there)
                argument = argument_of.get(column, column)
                remedy = f"--column {argument}={near or 'COLUMN'} names another for it"
                raise DataError(
                    f"{file.name}: the reward {label!r} needs the column {column!r}, but there are {', '.join(there)}; "
                    f"{remedy}"
                )


def _summary(verdicts: Sequence[Verdict]) -> str:
    present = [v.reward for v in verdicts if v.reward is not None]
    text = f"{len(verdicts)} rows"
    if present:
        mean = sum(present) / len(present)
        text += f": mean reward {mean:.4g}, lowest {min(present):.4g}, highest {max(present):.4g}"
    absent = len(verdicts) - len(present)
    return f"{text}; {absent} without a reward" if absent else text


def pairs(words: Sequence[str], option: str) -> dict[str, Any]:
    """`name=value` words as a mapping.

    Raises:
        ConfigError: a word without `=`, or a name given twice.
    """
    pairs: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ConfigError(f"{option} {word!r} is not of the form NAME=VALUE")
        if name in pairs:
            raise ConfigError(f"{option}: {name!r} is given twice; keep one")
        pairs[name] = value
    return pairs
