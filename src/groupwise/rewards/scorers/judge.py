"""A language model as the judge, over the chat API that most servers speak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt

from groupwise.config.base import FromBase
from groupwise.rewards.endpoint import Endpoint
from groupwise.rewards.judging import Judge, chat_address


async def judge(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    group_ids: Sequence[str],
    reference: Sequence[Any] | None = None,
    *,
    url: str = "",
    model: str = "",
    mode: Literal["score", "pairs"] = "score",
    rubric: str | None = None,
    low: float = 1.0,
    high: float = 10.0,
    opponents: Annotated[int, Ge(1)] | None = None,
    temperature: Annotated[float, Ge(0)] = 0.0,
    max_tokens: Annotated[int, Ge(1)] = 1024,
    extra: dict[str, Any] = {},  # noqa: B006  settings are never changed
    cache: Annotated[str, FromBase()] | None = None,
    key_variable: str | None = None,
    key_header: str = "Authorization",
    timeout_seconds: Annotated[float, Gt(0)] = 60.0,
    attempts: Annotated[int, Ge(1)] = 4,
    concurrency: Annotated[int, Ge(1)] = 8,
) -> list[Any]:
    """What a judge thinks of each completion, from 0 to 1, asked for at `{url}/chat/completions`.

    - `score`: the judge gives a mark from `low` to `high` by the rubric; the value is (mark - low) / (high - low).
    - `pairs`: each completion meets all others of its group, or `opponents` of them, every pair in both orders, since
      judges favour a place (Zheng et al. 2023, arXiv 2306.05685). A win counts 1, a tie 1/2, a loss 0; a pair counts
      the mean of its two orders, and the value is the mean over the pairs.

    Edge cases: equal completions tie without being asked about. A pair counts only when both orders were answered; a
    completion without any such pair, or with a mark outside `low` to `high` or none, fails alone. Alone in its group, a
    completion has nobody to be compared with: None.

    Args:
        prompts: text or messages, [N].
        completions: text or messages, [N].
        group_ids: equal for the completions of one prompt, [N].
        reference: per rollout a good answer that the judge may compare with, or None, [N].
        url: the address up to `/v1`.
        model: the judge's name there.
        mode: a mark for each, or comparisons within the group.
        rubric: what makes an answer good, in words; a general one by default.
        low: worst mark.
        high: best mark.
        opponents: how many others each completion meets; None for all.
        temperature: of the judge; at 0 it repeats itself as far as its server does.
        max_tokens: longest reply of the judge, its reasoning included.
        extra: further fields of every request; null removes one, such as max_tokens.
        cache: file that keeps the judge's replies between runs (SQLite); replies are kept in memory in any case.
        key_variable: environment variable that holds the key.
        key_header: header that carries it; `Authorization` is given as `Bearer KEY`.
        timeout_seconds: longest that one attempt may take.
        attempts: how often to try when the judge cannot be reached, is busy (429) or fails (5xx).
        concurrency: requests at a time.

    Raises:
        ValueError, ConfigError: address, model or key is missing, the cache cannot be used, settings do not fit.
    """
    endpoint = Endpoint(
        url=chat_address(url),
        key_variable=key_variable,
        key_header=key_header,
        timeout_seconds=timeout_seconds,
        attempts=attempts,
        concurrency=concurrency,
    )
    endpoint.check()
    if not low < high:
        raise ValueError(f"low is {low:g} and high is {high:g}, but the worst mark must be below the best")
    if opponents is not None and mode != "pairs":
        raise ValueError("opponents goes with mode: pairs")
    asked = Judge(
        endpoint, {"model": model, "temperature": temperature, "max_tokens": max_tokens, **extra}, cache
    )
    good = [None] * len(completions) if reference is None else reference
    if mode == "score":
        return await asked.marks(prompts, completions, good, rubric=rubric, low=low, high=high)
    return await asked.shares(prompts, completions, group_ids, good, rubric=rubric, opponents=opponents)
