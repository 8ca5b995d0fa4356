from typing import Any

import pytest

from groupwise.errors import RewardError
from groupwise.records import StopReason
from tests.rewards.examples import one, pairs, values


def test_one_bad_completion_of_many_is_found_by_halving() -> None:
    sizes = []

    def reward(completions: list[str]) -> list[float]:
        sizes.append(len(completions))
        if "bad" in completions:
            raise ValueError("bad")
        return [float(len(c)) for c in completions]

    texts = ["good"] * 64
    texts[21] = "bad"
    got = values(one(reward, on_failure="drop"), texts)
    assert got == [4.0] * 21 + [None] + [4.0] * 42
    # 64; then, at each of six halvings, both halves of the part that failed.
    assert sorted(sizes, reverse=True) == [64, 32, 32, 16, 16, 8, 8, 4, 4, 2, 2, 1, 1]


def test_under_fail_nothing_is_asked_behind_the_first_failure() -> None:
    asked: list[list[str]] = []

    def reward(completions: list[str]) -> list[float]:
        asked.append(completions)
        raise ValueError("bad")

    with pytest.raises(RewardError, match=r"failed on rollout 0 \(completion 'a'\): ValueError: bad"):
        values(one(reward), list("abcdefgh"))
    assert asked == [list("abcdefgh"), list("abcd"), list("ab"), ["a"]]


def test_a_function_of_groups_is_never_called_with_part_of_one() -> None:
    seen = []

    def win_rate(completions: list[str], group_ids: list[str]) -> list[float]:
        seen.append(list(zip(group_ids, completions, strict=True)))
        if "bad" in completions:
            raise ValueError("bad")
        return [float(len(completions))] * len(completions)

    prompts, rollouts = pairs(["a", "b", "bad", "c", "d"])
    prompts = [prompts[i] for i in (0, 0, 1, 1, 0)]
    rollouts = [
        _of(prompt, rollout, index)
        for prompt, rollout, index in zip(prompts, rollouts, (0, 1, 0, 1, 2), strict=True)
    ]
    rewards = one(win_rate, on_failure="drop")
    got = [v.reward for v in rewards.score(prompts, rollouts)]
    assert got == [3.0, 3.0, None, None, 3.0]
    assert [len(call) for call in seen] == [5, 3, 2]
    assert seen[0] == [
        (prompt.id, text) for prompt, text in zip(prompts, ["a", "b", "bad", "c", "d"], strict=True)
    ]


def _of(prompt: Any, rollout: Any, index: int) -> Any:
    import dataclasses

    return dataclasses.replace(rollout, prompt_id=prompt.id, group_index=index)


def test_the_same_prompt_drawn_twice_is_two_groups() -> None:
    def ids(completions: list[str], group_ids: list[str]) -> list[float]:
        groups.extend(group_ids)
        return [0.0] * len(completions)

    groups: list[str] = []
    prompts, rollouts = pairs(["a", "b", "c", "d"])
    prompts = [prompts[0]] * 4
    rollouts = [_of(prompts[0], r, i) for r, i in zip(rollouts, (0, 1, 0, 1), strict=True)]
    one(ids).score(prompts, rollouts)
    assert groups == ["data.jsonl:0", "data.jsonl:0", "data.jsonl:0#2", "data.jsonl:0#2"]


def test_an_exception_in_place_of_a_value_fails_that_rollout_alone() -> None:
    calls = []

    def reward(completions: list[str]) -> list[Any]:
        calls.append(completions)
        return [ValueError(f"no {c}") if c == "b" else 1.0 for c in completions]

    rewards = one(reward, on_failure="drop")
    verdicts = rewards.score(*pairs(["a", "b"]))
    assert [v.reward for v in verdicts] == [1.0, None]
    assert "ValueError: no b" in (verdicts[1].failure or "")
    assert len(calls) == 1
    with pytest.raises(RewardError) as caught:
        values(one(reward), ["a", "b"])
    assert isinstance(caught.value.__cause__, ValueError)


def test_what_is_logged_is_of_the_calls_that_succeeded() -> None:
    def reward(completions: list[str], log_metric: Any) -> list[float]:
        log_metric("size", len(completions))
        if "bad" in completions:
            raise ValueError("bad")
        return [0.0] * len(completions)

    rewards = one(reward, on_failure="drop")
    values(rewards, ["a", "b", "c", "bad"], stop=[StopReason.STOP] * 4)
    taken = rewards.take_metrics()
    assert taken.means["reward/logged/size"] == [2.0, 1.0]  # a and b; c
    assert taken.totals["reward/part/reward/failed_count"] == 1
    assert rewards.take_metrics().totals == {}
