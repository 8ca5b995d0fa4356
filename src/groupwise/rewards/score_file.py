"""Any reward on rows of text, through the same code as in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.errors import DataError
from groupwise.records import StopReason, Verdict
from groupwise.registry import nearest
from groupwise.rewards.completions import text_of
from groupwise.rewards.reward import Batch, Rewards


def score_rows(
    rewards: Rewards,
    rows: Sequence[Mapping[str, Any]],
    *,
    place: str = "rows",
    prompt: str = "prompt",
    completion: str = "completion",
) -> list[Verdict]:
    """Judge rows that hold a prompt, a completion and the columns that the rewards need.

    A prompt is text or a list of messages; the completion beside it is text in both cases, or the assistant's
    messages. `completion_ids` and `stop_reason` are handed to the rewards when every row has them. A column that some
    rows lack is None there.

    Args:
        rewards: as `build` made them.
        rows: one mapping per rollout.
        place: the file or source, for errors.
        prompt: the column of the prompt.
        completion: the column of the completion.

    Returns:
        One verdict per row, in order.

    Raises:
        DataError: a row without prompt or completion or with one of another kind; names the row, counted from 1.
        RewardError: as `Rewards.score`.
    """
    prompts, completions = [], []
    for number, row in enumerate(rows, start=1):
        where = f"{place} row {number}"
        asked, answer = _cell(row, prompt, where), _cell(row, completion, where)
        if not isinstance(answer, str):
            answer = text_of(answer)
        prompts.append(asked)
        completions.append(answer if isinstance(asked, str) else [{"role": "assistant", "content": answer}])
    own = {prompt, completion, "completion_ids", "stop_reason"}
    names = dict.fromkeys(name for row in rows for name in row if name not in own)
    rewards.check_columns(list(names), place)
    batch = Batch(
        prompts=prompts,
        completions=completions,
        completion_ids=_all_or_none(rows, "completion_ids", place),
        stop_reasons=_all_or_none(rows, "stop_reason", place),
        columns={name: [row.get(name) for row in rows] for name in names},
        places=[f"{place} row {number}" for number in range(1, len(rows) + 1)],
    )
    return rewards.score_batch(batch)


def _cell(row: Mapping[str, Any], column: str, where: str) -> Any:
    if column not in row:
        near = nearest(column, row)
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(row) or 'none'}"
        raise DataError(f"{where}: there is no column {column!r}; {hint}")
    value = row[column]
    if not isinstance(value, str):
        try:
            if not value or isinstance(value, Mapping):
                raise TypeError
            text_of(value)
        except TypeError:
            raise DataError(
                f"{where}: {column!r} holds {value!r:.60}; it should be text or a list of messages"
            ) from None
    return value


def _all_or_none(rows: Sequence[Mapping[str, Any]], column: str, place: str) -> list[Any] | None:
    values = [row.get(column) for row in rows]
    if any(value is None for value in values):
        return None
    for number, value in enumerate(values, start=1):
        if column == "stop_reason":
            fits = value in set(StopReason)
        else:
            fits = isinstance(value, Sequence) and all(type(x) is int for x in value)
        if not fits:
            wanted = "stop or length" if column == "stop_reason" else "a list of token ids"
            raise DataError(f"{place} row {number}: {column!r} holds {value!r:.60}; it should be {wanted}")
    return values
