import asyncio
import functools
import threading
from typing import Any

import pytest

from groupwise.rewards import build
from tests.rewards.examples import HERE, fragile, fragile_later, one, pairs, values


class Scaled:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, completions: list[str]) -> list[float]:
        return [self.factor * len(c) for c in completions]


class Later(Scaled):
    async def __call__(self, completions: list[str]) -> list[float]:  # type: ignore[override]
        return super().__call__(completions)


def scaled(completions: list[str], factor: float, answer: list[str] | None = None) -> list[float]:
    return [
        factor * len(c) + (100 if a == "x" else 0)
        for c, a in zip(completions, answer or completions, strict=True)
    ]


def test_partials_objects_methods_and_lambdas_have_readable_unique_labels() -> None:
    functions = [
        functools.partial(scaled, factor=2),
        functools.partial(scaled, factor=3),
        functools.partial(functools.partial(scaled, factor=4)),
        Scaled(10),
        Later(20),
        Scaled(7).__call__,
        lambda completions: [0.5] * len(completions),
        lambda completions: [0.25] * len(completions),
    ]
    rewards = build([], base=HERE, functions=functions)
    assert rewards.labels == (
        "scaled", "scaled_2", "scaled_3", "Scaled", "Later", "__call__", "lambda", "lambda_2"
    )  # fmt: skip
    verdict = rewards.score(*pairs(["ab"], columns={"answer": ["x"]}))[0]
    # Two letters; the column reaches a partial's function too, where the answer x adds 100.
    assert list(verdict.parts.values()) == [104.0, 106.0, 108.0, 20.0, 40.0, 14.0, 0.5, 0.25]
    assert verdict.reward == 392.75


def test_async_rewards_run_together() -> None:
    arrived = 0

    async def waits_for_the_other(completions: list[str]) -> list[float]:
        nonlocal arrived
        arrived += 1
        for _ in range(200):
            if arrived == 2:
                return [1.0] * len(completions)
            await asyncio.sleep(0.005)
        raise TimeoutError("the other did not run")

    rewards = build([], base=HERE, functions=[waits_for_the_other, waits_for_the_other])
    assert values(rewards, ["a"]) == [2.0]


def test_async_rewards_work_where_a_loop_already_runs() -> None:
    async def reward(completions: list[str]) -> list[float]:
        await asyncio.sleep(0)
        return [2.0]

    async def notebook() -> list[float | None]:
        return values(one(reward), ["a"])

    assert asyncio.run(notebook()) == [2.0]


def test_async_rewards_keep_their_loop_between_calls() -> None:
    lock: asyncio.Lock | None = None

    async def reward(completions: list[str]) -> list[float]:
        nonlocal lock
        lock = lock or asyncio.Lock()  # bound to the loop of its first wait, as an HTTP client is
        await asyncio.gather(*(self_locked(lock) for _ in range(2)))
        return [1.0]

    async def self_locked(lock: asyncio.Lock) -> None:
        async with lock:
            await asyncio.sleep(0)

    rewards = one(reward)
    assert [values(rewards, ["a"]), values(rewards, ["a"])] == [[1.0], [1.0]]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize(
    "policy", [{}, {"on_failure": "drop"}, {"on_failure": "value", "failure_value": 0.0}]
)
@pytest.mark.parametrize("later", [False, True])
def test_interruptions_are_never_swallowed(
    error: type[BaseException], policy: dict[str, Any], later: bool
) -> None:
    def now(completions: list[str]) -> list[float]:
        raise error

    async def afterwards(completions: list[str]) -> list[float]:
        await asyncio.sleep(0)
        raise error

    with pytest.raises(error):
        values(one(afterwards if later else now, **policy), ["a", "b"])
    assert values(one(fragile_later), ["abcd"]) == [1.0]  # the loop is alive


def test_an_interruption_inside_a_task_of_the_rewards_own_does_not_hang() -> None:
    async def inner() -> None:
        raise KeyboardInterrupt

    async def reward(completions: list[str]) -> list[float]:
        await asyncio.create_task(inner())
        return [1.0]

    with pytest.raises(KeyboardInterrupt):
        values(one(reward), ["a"])
    assert values(one(fragile_later), ["abcd"]) == [1.0]


def test_a_coroutine_that_never_starts_is_closed_without_a_warning() -> None:
    def interrupted(completions: list[str]) -> list[float]:
        raise KeyboardInterrupt

    rewards = build([], base=HERE, functions=[fragile_later, interrupted])
    with pytest.raises(KeyboardInterrupt):  # a warning that it was never awaited would be an error here
        values(rewards, ["abcd"])


def test_plain_rewards_run_in_the_callers_thread() -> None:
    seen = []

    def reward(completions: list[str]) -> list[float]:
        seen.append(threading.current_thread())
        return [0.0]

    values(one(reward), ["a"])
    assert seen == [threading.current_thread()]


def test_async_calls_for_single_rollouts_run_together() -> None:
    running, most = 0, 0

    async def reward(completions: list[str]) -> list[float]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return fragile(completions)

    assert values(one(reward, on_failure="drop"), ["abcd"] * 19 + ["abc"]) == [1.0] * 19 + [None]
    assert most == 20
