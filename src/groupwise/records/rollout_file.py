"""Rollouts on disk: one Parquet file per step, one row per rollout, readable with pandas or DuckDB.

`read_rollouts` gives back what `write_rollouts` was given, bit for bit. Equal input gives equal bytes: nothing in the
file depends on when or where it was written.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from numpy.typing import NDArray

from groupwise.errors import RunFolderError
from groupwise.records.nouns import (
    Baseline,
    BoolArray,
    FloatArray,
    Group,
    Prompt,
    Rollout,
    StopReason,
    TrainingGroup,
    Verdict,
)
from groupwise.records.replace import replace_file
from groupwise.records.rollout_schema import SCHEMA, SCHEMA_VERSION, VERSION_KEY

# Parquet's dictionary of distinct values merges the bit patterns of NaN, and barely shrinks log-probs.
_WITH_DICTIONARY = [field.name for field in SCHEMA if field.type in (pa.string(), pa.int32(), pa.int64())]


def write_rollouts(path: Path, groups: Sequence[TrainingGroup], *, step: int) -> None:
    """Write one step's rollouts, one row each, atomically.

    Args:
        path: the Parquet file; its folder must exist.
        groups: in the order of the batch; none at all gives a file without rows.
        step: which batch this is.

    Raises:
        RunFolderError: the file cannot be written, or a prompt holds values that JSON or UTF-8 cannot; names it.
        ValueError: a group whose parts do not fit together in number, length or type.
    """
    for group in groups:
        _refuse_misfits(group)
    table = _table(groups, step)
    replace_file(
        path, lambda file: pq.write_table(table, file, compression="zstd", use_dictionary=_WITH_DICTIONARY)
    )


def read_rollouts(path: str | Path, *, groups: Collection[int] | None = None) -> list[TrainingGroup]:
    """The groups of one file, in their order.

    JSON has lists only, so a tuple inside `messages` or `columns` comes back as a list.

    Args:
        path: the Parquet file.
        groups: only those with these numbers; None for all.

    Raises:
        RunFolderError: no such file, not a rollout file, damaged, or of a newer schema version.
    """
    table = read_table(Path(path))
    if groups is not None:
        table = table.filter(pa.compute.is_in(table["group"], pa.array(sorted(groups), type=pa.int32())))
    return [_training_group(rows) for rows in _rows_by_group(table)]


def read_table(path: Path, columns: Collection[str] | None = None) -> pa.Table:
    """The rows of one file as they are.

    Args:
        path: the Parquet file.
        columns: only these, as far as the file's version has them; None for all.

    Raises:
        RunFolderError: see `read_rollouts`.
    """
    try:
        schema = pq.read_schema(path)
        version = int((schema.metadata or {}).get(VERSION_KEY, b"0"))
        if version == 0:
            raise RunFolderError(f"{path} is a Parquet file, but not one of rollouts that groupwise wrote")
        if version > SCHEMA_VERSION:
            raise RunFolderError(
                f"{path} has schema version {version}, and this groupwise reads up to {SCHEMA_VERSION}; install a "
                "newer one"
            )
        chosen = None if columns is None else [name for name in schema.names if name in columns]
        return pq.read_table(path, columns=chosen, partitioning=None)
    except FileNotFoundError:
        raise RunFolderError(
            f"there is no rollout file {path}; was the run started with run.save_rollouts?"
        ) from None
    except (OSError, pa.ArrowInvalid) as error:
        raise RunFolderError(f"{path} cannot be read as Parquet, it may be damaged: {error}") from error


def _refuse_misfits(entry: TrainingGroup) -> None:
    group = entry.group
    place = f"group of prompt {group.prompt.id}"
    G = len(group.rollouts_G)
    counts = {"in_loss": len(entry.in_loss_G)}
    per_token: dict[str, tuple[NDArray[Any], ...] | None] = {
        "advantages": entry.advantages_GT,
        "old log-probs": entry.old_logprobs_GT,
        "reference log-probs": entry.reference_logprobs_GT,
        "values": entry.values_GT,
        "value targets": entry.value_targets_GT,
    }
    counts |= {name: len(arrays) for name, arrays in per_token.items() if arrays is not None}
    for name, count in counts.items():
        if count != G or G == 0:
            raise ValueError(f"{place}: {G} rollouts but {count} entries in {name}")
    for name, arrays in per_token.items():
        for rollout, array in zip(group.rollouts_G, arrays or (), strict=False):
            if len(array) != len(rollout.token_ids_T):
                raise ValueError(
                    f"{place}: rollout {rollout.group_index} has {len(rollout.token_ids_T)} tokens "
                    f"but {len(array)} {name}"
                )


def _table(groups: Sequence[TrainingGroup], step: int) -> pa.Table:
    """The rows of all groups, column by column."""
    lined_up = [_with_greedy(entry) for entry in groups]
    rows = [
        (number, i, entry)
        for number, entry in enumerate(lined_up)
        for i in range(len(entry.group.rollouts_G))
    ]
    rollouts = [entry.group.rollouts_G[i] for _, i, entry in rows]
    verdicts = [entry.group.verdicts_G[i] for _, i, entry in rows]
    prompts = [entry.group.prompt for _, _, entry in rows]
    messages = {
        id(p): None if p.messages is None else _json(p, "messages", list(p.messages)) for p in prompts
    }
    columns = {id(p): _json(p, "columns", dict(p.columns)) for p in prompts}
    advantages = [_advantage(entry.advantages_GT[i], entry.group.rollouts_G[i]) for _, i, entry in rows]
    values: dict[str, Any] = {
        "step": [step] * len(rows),
        "group": [number for number, _, _ in rows],
        "group_index": [rollout.group_index for rollout in rollouts],
        "greedy": [i == len(groups[number].group.rollouts_G) for number, i, _ in rows],
        "prompt_id": [p.id for p in prompts],
        "source": [p.source for p in prompts],
        "prompt": [p.text for p in prompts],
        "messages": [messages[id(p)] for p in prompts],
        "columns": [columns[id(p)] for p in prompts],
        "response": [rollout.text for rollout in rollouts],
        "reward": [verdict.reward for verdict in verdicts],
        "parts": [list(verdict.parts.items()) for verdict in verdicts],
        "terms": [list(verdict.terms.items()) for verdict in verdicts],
        "token_reward": [verdict.token_rewards for verdict in verdicts],
        "failure": [verdict.failure for verdict in verdicts],
        "advantage": [scalar for scalar, _ in advantages],
        "token_advantage": [by_token for _, by_token in advantages],
        "in_loss": [bool(entry.in_loss_G[i]) for _, i, entry in rows],
        "zero_spread": [entry.zero_spread for _, _, entry in rows],
        "stop_reason": [rollout.stop_reason.value for rollout in rollouts],
        "policy_version": [rollout.policy_version for rollout in rollouts],
        "prompt_token_ids": [p.token_ids for p in prompts],
        "token_ids": [rollout.token_ids_T for rollout in rollouts],
        "trainable": [rollout.trainable_T for rollout in rollouts],
        "sampler_logprob": [rollout.sampler_logprobs_T for rollout in rollouts],
        "old_logprob": [entry.old_logprobs_GT[i] for _, i, entry in rows],
        "ref_logprob": [_one(entry.reference_logprobs_GT, i) for _, i, entry in rows],
        "value": [_one(entry.values_GT, i) for _, i, entry in rows],
        "value_target": [_one(entry.value_targets_GT, i) for _, i, entry in rows],
        "kept_mass": [rollout.kept_mass_T for rollout in rollouts],
        "entropy": [rollout.entropy_T for rollout in rollouts],
        "inserted": [rollout.inserted_T for rollout in rollouts],
        "max_new_tokens": [p.max_new_tokens for p in prompts],
    }
    return pa.Table.from_arrays([_column(field, values[field.name]) for field in SCHEMA], schema=SCHEMA)


def _with_greedy(entry: TrainingGroup) -> TrainingGroup:
    """The group with its greedy baseline as one more rollout that is left out."""
    greedy = entry.group.greedy
    if greedy is None:
        return entry
    tokens = len(greedy.rollout.token_ids_T)
    unknown = np.full(tokens, np.nan, dtype=np.float32)

    def more(arrays: tuple[FloatArray, ...] | None) -> tuple[FloatArray, ...] | None:
        return None if arrays is None else (*arrays, unknown)

    return replace(
        entry,
        group=Group(
            prompt=entry.group.prompt,
            rollouts_G=(*entry.group.rollouts_G, greedy.rollout),
            verdicts_G=(*entry.group.verdicts_G, greedy.verdict),
        ),
        advantages_GT=(*entry.advantages_GT, np.zeros(tokens)),
        in_loss_G=np.append(entry.in_loss_G, False),
        old_logprobs_GT=(*entry.old_logprobs_GT, unknown),
        reference_logprobs_GT=more(entry.reference_logprobs_GT),
        values_GT=more(entry.values_GT),
        value_targets_GT=more(entry.value_targets_GT),
    )


def _one(arrays: tuple[FloatArray, ...] | None, i: int) -> FloatArray | None:
    return None if arrays is None else arrays[i]


def _advantage(
    advantages_T: NDArray[np.float64], rollout: Rollout
) -> tuple[float | None, NDArray[np.float64] | None]:
    """The one number that holds for every trained token, or else all of them; the other is None."""
    trained = np.flatnonzero(rollout.trainable_T)
    scalar = float(advantages_T[trained[0]]) if len(trained) else 0.0
    if advantages_T.tobytes() == _spread_out(scalar, rollout.trainable_T).tobytes():
        return scalar, None
    return None, advantages_T


def _spread_out(scalar: float, trainable_T: BoolArray) -> NDArray[np.float64]:
    return np.where(trainable_T, scalar, 0.0)


def _column(field: pa.Field, values: list[Any]) -> pa.Array:
    if _of_numbers(field):
        return _lists(field, values)
    try:
        return pa.array(values, type=field.type)
    except UnicodeEncodeError as error:
        raise RunFolderError(
            f"the column {field.name} holds {error.object[error.start : error.end]!r}, half of a surrogate pair, "
            "which no text file can hold; mend it in the data or the reward"
        ) from None


def _of_numbers(field: pa.Field) -> bool:
    """True for lists without nulls in them, which are NumPy arrays."""
    return pa.types.is_list(field.type) and not field.type.value_field.nullable


def _lists(field: pa.Field, arrays: list[np.ndarray[Any, Any] | None]) -> pa.Array:
    """A list column from NumPy arrays, without a detour through Python numbers, so that every bit stays."""
    wanted = np.dtype(field.type.value_type.to_pandas_dtype())
    present = [array for array in arrays if array is not None]
    wrong = next((array.dtype for array in present if array.dtype != wanted), None)
    if wrong is not None:
        raise ValueError(f"{field.name}: an array of {wrong}, but the record holds {wanted}")
    offsets = np.cumsum([0, *(0 if array is None else len(array) for array in arrays)]).astype(np.int32)
    absent = pa.array([array is None for array in arrays], type=pa.bool_()) if field.nullable else None
    values = np.concatenate([np.empty(0, dtype=wanted), *present])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), type=field.type, mask=absent)


def _json(prompt: Prompt, what: str, value: Any) -> str:
    # ASCII escapes hold any text, half surrogate pairs too; NaN is spelled as Python's reader takes it.
    try:
        return json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise RunFolderError(
            f"prompt {prompt.id}: its {what} cannot be written as JSON ({error}); "
            "keep to text, numbers, lists and mappings, or set run.save_rollouts to false"
        ) from None


def _rows_by_group(table: pa.Table) -> Iterator[list[dict[str, Any]]]:
    """The rows of one group after the other; list columns as NumPy arrays."""
    columns: dict[str, list[Any]] = {}
    for field in SCHEMA:
        if field.name not in table.column_names and field.nullable:  # a file of an earlier version
            columns[field.name] = [None] * table.num_rows
            continue
        column = table.column(field.name)
        if _of_numbers(field):
            columns[field.name] = [
                np.array(scalar.values.to_numpy(zero_copy_only=False)) if scalar.is_valid else None
                for scalar in column
            ]
        else:
            columns[field.name] = column.to_pylist()
    rows: list[dict[str, Any]] = []
    for i in range(table.num_rows):
        if rows and columns["group"][i] != rows[-1]["group"]:
            yield rows
            rows = []
        rows.append({name: values[i] for name, values in columns.items()})
    if rows:
        yield rows


def _training_group(rows: list[dict[str, Any]]) -> TrainingGroup:
    greedy = next((row for row in rows if row["greedy"]), None)
    rows = [row for row in rows if not row["greedy"]]
    first = rows[0]
    prompt = Prompt(
        id=first["prompt_id"],
        source=first["source"],
        messages=None if first["messages"] is None else tuple(json.loads(first["messages"])),
        text=first["prompt"],
        token_ids=first["prompt_token_ids"],
        columns=json.loads(first["columns"]),
        max_new_tokens=first["max_new_tokens"],
    )
    group = Group(
        prompt=prompt,
        rollouts_G=tuple(_rollout(row) for row in rows),
        verdicts_G=tuple(_verdict(row) for row in rows),
        greedy=None if greedy is None else Baseline(rollout=_rollout(greedy), verdict=_verdict(greedy)),
    )

    def where_known(name: str) -> tuple[FloatArray, ...] | None:
        return None if first[name] is None else tuple(row[name] for row in rows)

    return TrainingGroup(
        group=group,
        advantages_GT=tuple(
            _spread_out(row["advantage"], row["trainable"])
            if row["token_advantage"] is None
            else row["token_advantage"]
            for row in rows
        ),
        in_loss_G=np.array([row["in_loss"] for row in rows], dtype=np.bool_),
        zero_spread=first["zero_spread"],
        old_logprobs_GT=tuple(row["old_logprob"] for row in rows),
        reference_logprobs_GT=where_known("ref_logprob"),
        values_GT=where_known("value"),
        value_targets_GT=where_known("value_target"),
    )


def _rollout(row: dict[str, Any]) -> Rollout:
    return Rollout(
        prompt_id=row["prompt_id"],
        group_index=row["group_index"],
        token_ids_T=row["token_ids"],
        trainable_T=row["trainable"],
        sampler_logprobs_T=row["sampler_logprob"],
        kept_mass_T=row["kept_mass"],
        entropy_T=row["entropy"],
        stop_reason=StopReason(row["stop_reason"]),
        policy_version=row["policy_version"],
        text=row["response"],
        inserted_T=row["inserted"],
    )


def _verdict(row: dict[str, Any]) -> Verdict:
    return Verdict(
        reward=row["reward"],
        parts=dict(row["parts"]),
        failure=row["failure"],
        terms=dict(row["terms"] or {}),
        token_rewards=None if row["token_reward"] is None else tuple(row["token_reward"]),
    )
