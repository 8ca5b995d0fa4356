"""Any service that takes JSON and gives scores back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt

from groupwise.rewards.completions import text_of
from groupwise.rewards.endpoint import Endpoint, ServiceError, at_path

_REMEDY = "; name the place of the scores with the setting path"


async def http(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    *,
    url: str = "",
    send: tuple[str, ...] = (),
    shape: Literal["lists", "single"] = "lists",
    per_request: Annotated[int, Ge(1)] = 1,
    path: str | None = None,
    extra: dict[str, Any] = {},  # noqa: B006  settings are never changed
    key_variable: str | None = None,
    key_header: str = "Authorization",
    timeout_seconds: Annotated[float, Gt(0)] = 30.0,
    attempts: Annotated[int, Ge(1)] = 4,
    concurrency: Annotated[int, Ge(1)] = 8,
    **columns: Sequence[Any],
) -> list[Any]:
    """The numbers that a service answers, one per rollout; zero is a value, and null is for one that it leaves open.

    Under `shape: lists` a request is `{"prompts": [...], "completions": [...]}`, with a list for each column in `send`,
    and the reply has a list of as many numbers at `path`, by default `scores`. Under `single` it is
    `{"prompt": ..., "completion": ...}` with the row's values, and the reply has a number at `path`, by default
    `score`. A prompt is text, or a list of messages; a completion is text.

    Edge cases: whatever goes wrong (no answer in time, an error, a reply of another form, another number of scores)
    fails the rollouts of that request, and no others, with the service's own words; see `on_failure`.

    Args:
        prompts: text or messages, [N].
        completions: text or messages, [N].
        url: the address, http or https.
        send: data columns that go into the request.
        shape: how a request and its reply look.
        per_request: rollouts in one request, under `lists`.
        path: dotted place of the scores in the reply, such as `data.0.score`; an empty text for the reply itself.
        extra: further fields of every request.
        key_variable: environment variable that holds the key.
        key_header: header that carries it; `Authorization` is given as `Bearer KEY`.
        timeout_seconds: longest that one attempt may take.
        attempts: how often to try when the service cannot be reached, is busy (429) or fails (5xx).
        concurrency: requests at a time.
        columns: the data's columns, [N] each.

    Raises:
        ValueError: the address or the key is missing, a column in `send` is not there, or settings do not fit.
    """
    endpoint = Endpoint(
        url=url,
        key_variable=key_variable,
        key_header=key_header,
        timeout_seconds=timeout_seconds,
        attempts=attempts,
        concurrency=concurrency,
    )
    endpoint.check()
    single = shape == "single"
    if single and per_request != 1:
        raise ValueError(
            "per_request goes with shape: lists; under single each rollout has a request of its own"
        )
    rows = _rows(prompts, completions, send, extra, columns, single=single)
    place = path if path is not None else "score" if single else "scores"
    if single:
        return await endpoint.ask_all(
            [{**row, **extra} for row in rows], lambda reply: at_path(reply, place, _REMEDY)
        )
    parts = [rows[i : i + per_request] for i in range(0, len(rows), per_request)]
    bodies = [{name: [row[name] for row in part] for name in part[0]} | extra for part in parts]
    replies = await endpoint.ask_all(bodies, lambda reply: _list(at_path(reply, place, _REMEDY), place))
    return [
        value for part, reply in zip(parts, replies, strict=True) for value in _of_part(part, reply, place)
    ]


def needed_columns(*, send: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The columns that these settings cannot do without."""
    return tuple(send)


def _rows(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    send: Sequence[str],
    extra: Mapping[str, Any],
    columns: Mapping[str, Sequence[Any]],
    *,
    single: bool,
) -> list[dict[str, Any]]:
    """What a request says of each rollout."""
    names = ("prompt", "completion") if single else ("prompts", "completions")
    for name in (*send, *extra):
        if name in names or (name in send and name in extra):
            raise ValueError(
                f"{name!r} would stand twice in a request; send and extra may not repeat a field"
            )
    missing = next((name for name in send if completions and name not in columns), None)
    if missing is not None:
        raise ValueError(f"send names the column {missing!r}, which the data does not have")
    return [
        {names[0]: prompt, names[1]: text_of(completion), **{name: columns[name][i] for name in send}}
        for i, (prompt, completion) in enumerate(zip(prompts, completions, strict=True))
    ]


def _list(found: Any, place: str) -> list[Any]:
    if not isinstance(found, list):
        raise ServiceError(f"its reply has {found!r:.60} at {place!r}, where a list of numbers belongs")
    return found


def _of_part(part: Sequence[Any], reply: Any, place: str) -> Sequence[Any]:
    """One value per rollout of a request, or the same failure for each."""
    if isinstance(reply, ServiceError):
        return [reply] * len(part)
    if len(reply) != len(part):
        wrong = ServiceError(f"its reply has {len(reply)} numbers at {place!r} for {len(part)} rollouts")
        return [wrong] * len(part)
    return list(reply)
