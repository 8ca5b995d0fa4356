import asyncio
import dataclasses
import json
import math
import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from groupwise.config.rewards import RewardConfig
from groupwise.errors import CheckpointError, RewardError
from groupwise.records import StopReason
from groupwise.rewards import TrainerState, build
from tests.rewards.examples import HERE, fragile, fragile_later, one, pairs, values


def test_a_text_reward_written_for_trl_works_unchanged() -> None:
    seen: dict[str, Any] = {}

    def reward_func(completions, answer, **kwargs):  # type: ignore[no-untyped-def]
        seen.update(kwargs)
        return [1.0 if c == a else 0.0 for c, a in zip(completions, answer, strict=True)]

    rewards = one(reward_func)
    prompts, rollouts = pairs(
        ["4", "5"],
        columns={"answer": ["4", "4"], "level": [1, 2]},
        ids=[[7, 2], [8]],
        stop=[StopReason.STOP, StopReason.LENGTH],
    )
    verdicts = rewards.score(prompts, rollouts, step=3, max_steps=10)
    assert [v.reward for v in verdicts] == [1.0, 0.0]
    assert seen["prompts"] == ["question 0", "question 1"]
    assert seen["completion_ids"] == [[7, 2], [8]]
    assert seen["stop_reasons"] == ["stop", "length"]
    assert [type(reason) for reason in seen["stop_reasons"]] == [str, str]
    assert seen["level"] == [1, 2]
    assert seen["trainer_state"] == TrainerState(global_step=3, max_steps=10)
    assert set(seen) == {
        "prompts", "completion_ids", "stop_reasons", "level", "trainer_state", "log_extra", "log_metric"
    }  # fmt: skip


def test_a_chat_reward_written_for_trl_works_unchanged() -> None:
    seen: dict[str, Any] = {}

    def reward_func(prompts, completions, ground_truth, **kwargs):  # type: ignore[no-untyped-def]
        seen.update(prompts=prompts, completions=completions)
        contents = [completion[0]["content"] for completion in completions]
        return [1.0 if c == gt else 0.0 for c, gt in zip(contents, ground_truth, strict=True)]

    assert values(one(reward_func), ["a", "b"], chat=True, columns={"ground_truth": ["x", "b"]}) == [0.0, 1.0]
    assert seen["prompts"] == [
        [{"role": "user", "content": "question 0"}],
        [{"role": "user", "content": "question 1"}],
    ]
    assert seen["completions"][1] == [{"role": "assistant", "content": "b"}]


def test_an_async_reward_written_for_trl_works_unchanged() -> None:
    async def async_reward_func(prompts, completions, **kwargs):  # type: ignore[no-untyped-def]
        await asyncio.sleep(0.001)
        return [float(len(c)) for c in completions]

    assert values(one(async_reward_func), ["a", "bcd"]) == [1.0, 3.0]


def test_none_means_that_a_reward_does_not_apply() -> None:
    def math_only(prompts, completions, task, **kwargs):  # type: ignore[no-untyped-def]
        return [1.0 if t == "math" else None for t in task]

    def code_only(prompts, completions, task, **kwargs):  # type: ignore[no-untyped-def]
        return [0.5 if t == "code" else None for t in task]

    rewards = build([], base=HERE, functions=[math_only, (code_only, 3)])
    verdicts = rewards.score(*pairs(["", "", ""], columns={"task": ["math", "code", "chat"]}))
    assert [v.reward for v in verdicts] == [1.0, 1.5, None]  # 1 x 1; 3 x 0.5; nothing
    assert verdicts[1].parts == {"math_only": None, "code_only": 0.5}
    assert [v.failure for v in verdicts] == [None, None, "no reward applies"]


def test_what_rewards_log_is_handed_out_once_and_extras_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    def reward_func(completions, log_extra, log_metric):  # type: ignore[no-untyped-def]
        log_extra("first_letter", [c[:1] for c in completions])
        log_metric("share_a", torch.tensor(0.5))
        log_metric("share_a", 0.25)
        return [0.0] * len(completions)

    rewards = one(reward_func)
    values(rewards, ["ab", "ba"])
    assert rewards.take_logged() == {"share_a": [0.5, 0.25]}
    assert rewards.take_logged() == {}
    values(rewards, ["c"])
    values(rewards, ["d"])
    assert rewards.take_logged() == {"share_a": [0.5, 0.25, 0.5, 0.25]}  # of both calls since
    (warning,) = caplog.messages  # once, however often it is called
    assert warning.startswith(
        "the reward 'reward_func' gives the column 'first_letter' to log_extra, which is not"
    )


def test_a_function_gets_only_the_arguments_that_it_names() -> None:
    rewards = one(lambda completions, level=0: [float(x) for x in level])
    assert values(rewards, ["a"], columns={"level": [3], "answer": ["unused"]}) == [3.0]
    assert values(one(lambda completions, level=0: [float(level)]), ["a"]) == [0.0]  # its own default


def test_a_keyword_only_column_of_a_function_given_in_python_is_filled_from_the_data() -> None:
    def reward_func(completions, *, answer=None, **kwargs):  # type: ignore[no-untyped-def]
        return [float(c == a) for c, a in zip(completions, answer, strict=True)]

    assert values(one(reward_func), ["x"], columns={"answer": ["x"]}) == [1.0]


def test_no_reward_can_change_what_another_sees() -> None:
    def vandal(prompts, completions, answer):  # type: ignore[no-untyped-def]
        prompts[0].append({"role": "user", "content": "extra"})
        completions[0][0]["content"] = "changed"
        answer[0] = "changed"
        return [0.0]

    def honest(prompts, completions, answer):  # type: ignore[no-untyped-def]
        return [float(len(prompts[0]) == 1 and completions[0][0]["content"] == "4" and answer[0] == "4")]

    rewards = build([], base=HERE, functions=[vandal, honest])
    assert values(rewards, ["4"], chat=True, columns={"answer": ["4"]}) == [1.0]


def test_trainer_state_reads_as_trls() -> None:
    seen = SimpleNamespace()

    def reward(completions, trainer_state):  # type: ignore[no-untyped-def]
        seen.share = trainer_state.global_step / trainer_state.max_steps
        return [0.0]

    prompts, rollouts = pairs(["a"])
    one(reward).score(prompts, rollouts, step=5, max_steps=20)
    assert seen.share == 0.25


@pytest.mark.parametrize("function", [fragile, fragile_later])
def test_an_exception_is_blamed_on_its_rollout_alone(function: Any) -> None:
    texts = ["abcd"] * 5 + ["abc", "abcde", "abcd"]
    rewards = one(function, on_failure="drop")
    verdicts = rewards.score(*pairs(texts))
    assert [v.reward for v in verdicts] == [1.0] * 5 + [None, 0.5, 1.0]  # 1/(4-3), 1/(5-3)
    assert verdicts[5].failure == (
        f"the reward {function.__name__!r} failed on rollout 5 (completion 'abc'): "
        "ZeroDivisionError: float division by zero (the prompt is data.jsonl:5)"
    )
    assert rewards.failures == {function.__name__: 1}
    rewards.score(*pairs(texts))
    assert rewards.failures == {function.__name__: 2}


@pytest.mark.parametrize("function", [fragile, fragile_later])
def test_under_fail_an_exception_ends_the_run_with_its_place_and_cause(function: Any) -> None:
    rewards = one(function, label="mine")
    with pytest.raises(RewardError) as caught:
        values(rewards, ["abcd", "abc"])
    assert "the reward 'mine' failed on rollout 1 (completion 'abc'): ZeroDivisionError" in str(caught.value)
    assert "(the prompt is data.jsonl:1); mend it" in str(caught.value)
    assert "set rewards[0].on_failure to drop or value" in str(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert rewards.failures == {"mine": 1}


def test_a_failure_shows_the_first_80_characters_of_the_completion() -> None:
    def reward(completions: list[str]) -> list[float]:
        raise ValueError("no")

    with pytest.raises(RewardError) as caught:
        values(one(reward), ["x" * 79 + "yz"])
    assert f"(completion '{'x' * 79}y'): ValueError: no" in str(caught.value)


@pytest.mark.parametrize("policy", [{"on_failure": "drop"}, {"on_failure": "value", "failure_value": 0.0}])
def test_a_function_that_fails_on_every_rollout_ends_the_run_whatever_the_policy(
    policy: dict[str, Any],
) -> None:
    def typo(completions: list[str]) -> list[float]:
        return [undefined_name for _ in completions]  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(RewardError, match=r"failed on every rollout of a batch of 3.*NameError") as caught:
        values(one(typo, **policy), ["a", "b", "c"])
    assert isinstance(caught.value.__cause__, NameError)
    assert caught.value.__cause__.__traceback__ is not None
    with pytest.raises(RewardError, match="failed on every rollout"):
        values(one(lambda completions: [math.nan] * len(completions), **policy), ["a", "b"])


def test_a_batch_of_one_ends_the_run_only_if_the_reward_has_never_worked() -> None:
    rewards = one(fragile, on_failure="drop")
    with pytest.raises(RewardError, match="every rollout of a batch of 1"):
        values(rewards, ["abc"])
    assert values(rewards, ["abcd"]) == [1.0]
    assert values(rewards, ["abc"]) == [None]


def test_a_batch_that_fails_as_a_whole_but_in_no_part() -> None:
    def reward(completions: list[str]) -> list[float]:
        if len(completions) > 1:
            raise OSError("busy")
        return [1.0]

    with pytest.raises(
        RewardError, match="on a batch of 2 rollouts, but on none of them alone: OSError: busy"
    ):
        values(one(reward), ["a", "b"])
    assert values(one(reward, on_failure="drop"), ["a", "b"]) == [1.0, 1.0]


def test_a_call_for_one_rollout_gets_all_that_is_its_own() -> None:
    def reward(prompts, completions, completion_ids, stop_reasons, answer):  # type: ignore[no-untyped-def]
        if len(completions) > 1:
            raise OSError("one at a time")
        said = [prompts[0][-1], completions[0], str(completion_ids[0][0]), stop_reasons[0][0], answer[0]]
        return [
            float(said == {"a": ["0", "a", "7", "s", "x"], "b": ["1", "b", "8", "l", "y"]}[completions[0]])
        ]

    given = {
        "columns": {"answer": ["x", "y"]},
        "ids": [[7], [8]],
        "stop": [StopReason.STOP, StopReason.LENGTH],
    }
    assert values(one(reward, on_failure="drop"), ["a", "b"], **given) == [1.0, 1.0]


def test_what_a_failed_call_logged_is_not_kept() -> None:
    def reward(completions, log_metric, log_extra):  # type: ignore[no-untyped-def]
        log_metric("calls", len(completions))
        log_extra("text", completions)
        return fragile(completions)

    rewards = one(reward, on_failure="drop")
    assert values(rewards, ["abcd", "abc", "ab"]) == [1.0, None, -1.0]  # 1/(2-3)
    assert rewards.take_logged() == {"calls": [1.0, 1.0]}


def test_other_rewards_keep_their_values_where_one_fails() -> None:
    configs = [
        RewardConfig(name="tests.rewards.examples:fragile", on_failure="drop"),
        RewardConfig(name="length", settings={"target": 2, "alpha": 1, "unit": "characters"}),
    ]
    rewards = build(configs, base=HERE.parents[1])
    verdicts = rewards.score(*pairs(["abcd", "abc"]))
    assert [v.parts for v in verdicts] == [
        {"fragile": 1.0, "length": -2.0},
        {"fragile": None, "length": -1.0},
    ]
    assert [v.reward for v in verdicts] == [-1.0, None]


def test_labels_weights_and_which_came_from_python() -> None:
    configs = [RewardConfig(name="numeric"), RewardConfig(name="numeric", weight=5)]
    rewards = build(configs, base=HERE, functions=[(fragile, -1)])
    assert rewards.weighted == (("numeric", 1.0), ("numeric_2", 5.0), ("fragile", -1.0))
    assert rewards.from_python == ("fragile",)


def test_a_watched_reward_is_recorded_and_never_decides(caplog: pytest.LogCaptureFixture) -> None:
    def judge(completions: list[str]) -> list[float]:
        if "odd" in completions:
            raise ValueError("unreadable")
        return [2.0 * len(c) for c in completions]

    def score(completions: list[str]) -> list[float]:
        return [float(len(c)) for c in completions]

    rewards = build([], base=HERE, functions=[score, (judge, {"weight": 0, "on_failure": "drop"})])
    verdicts = rewards.score(*pairs(["a", "odd", "four"]))
    assert [v.reward for v in verdicts] == [1.0, 3.0, 4.0]
    assert [v.parts["judge"] for v in verdicts] == [2.0, None, 8.0]
    assert "unreadable" in (verdicts[1].failure or "")
    taken = rewards.take_metrics()
    assert taken.means["reward/part/judge/correlation"] == [pytest.approx(1.0)]
    assert taken.totals["reward/part/judge/failed_count"] == 1
    # It may fail altogether, which is told, and the run goes on.
    assert values(rewards, ["odd"]) == [3.0]
    assert sum("unreadable" in message for message in caplog.messages) == 2
    assert "reward/part/judge/correlation" not in rewards.take_metrics().means  # nothing varies


def test_only_training_normalises_and_moves_the_statistics() -> None:
    def score(completions: list[str]) -> list[float]:
        return [float(len(c)) for c in completions]

    options = {"normalise": "batch", "smoothing": 0.5, "weight": 2.0}
    rewards = build([], base=HERE, functions=[(score, options)])
    batch = pairs(["a", "abc"])
    assert [v.reward for v in rewards.score(*batch)] == [2.0, 6.0]
    # Mean 2, sample std sqrt(2): -1 / sqrt(2) and 1 / sqrt(2), times 2.
    trained = [v.reward for v in rewards.score(*batch, training=True)]
    assert trained == pytest.approx([-math.sqrt(2), math.sqrt(2)])
    assert [v.reward for v in rewards.score(*batch)] == [2.0, 6.0]
    taken = rewards.take_metrics()
    assert taken.means["reward/raw_mean"] == [2.0, 6.0]
    assert taken.means["reward/part/score/running_std"] == [pytest.approx(math.sqrt(2))]


def test_a_resumed_run_scores_as_the_whole_one_would() -> None:
    def score(completions: list[str]) -> list[float]:
        return [1.0 / len(c) for c in completions]

    def fresh() -> Any:
        options = {"normalise": "group", "smoothing": 0.9, "on_failure": "drop"}
        return build([], base=HERE, functions=[(score, options)])

    prompts, rollouts = pairs(["a", "abcd", "ab", ""])
    prompts = [prompts[0]] * 4
    group = [dataclasses.replace(r, prompt_id=prompts[0].id, group_index=i) for i, r in enumerate(rollouts)]
    whole, first, second = fresh(), fresh(), fresh()
    for i in range(3):
        wanted = [v.reward for v in whole.score(prompts[i:], group[i:], training=True)]
    for i in range(2):
        first.score(prompts[i:], group[i:], training=True)
    second.restore(json.loads(json.dumps(first.state())))
    assert [v.reward for v in second.score(prompts[2:], group[2:], training=True)] == wanted
    assert second.failures == whole.failures == {"score": 3}
    assert values(second, [""]) == [None]  # it has worked before, so one failure does not end the run
    assert second.state() != first.state()


@pytest.mark.parametrize(
    "state", [{}, {"labels": ["other"]}, {"labels": ["fragile"]}, {"labels": ["fragile"], "failures": 3}]
)
def test_a_state_of_other_rewards_is_refused(state: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="rewards"):
        one(fragile).restore(state)


def test_what_is_counted_of_each_reward() -> None:
    configs = [
        RewardConfig(name="exact", label="right", weight=0.0),
        RewardConfig(
            name="length",
            label="short",
            settings={"unit": "characters", "target": 0, "alpha": 1},
            gate={"reward": "right"},
            schedule=((0, 1.0), (10, 3.0)),
        ),
    ]
    rewards = build(configs, base=HERE)
    prompts, rollouts = pairs(["yes", "no"], columns={"answer": ["yes", "yes"]})
    verdicts = rewards.score(prompts, rollouts, step=5)
    assert [v.terms for v in verdicts] == [{"short": -6.0}, {"short": 0.0}]  # -3 x 2; its gate is closed
    assert [v.parts for v in verdicts] == [{"right": 1.0, "short": -3.0}, {"right": 0.0, "short": -2.0}]
    taken = rewards.take_metrics()
    assert taken.means["reward/part/short/weight"] == [2.0]
    assert taken.means["reward/part/short/gate_closed_fraction"] == [0.0, 1.0]
    assert set(taken.totals) == {
        f"{name.format(label)}" for label in ("right", "short")
        for name in ("reward/part/{}/failed_count", "time/reward/{}_seconds")
    }  # fmt: skip


def lowered(completions: list[Any]) -> list[float]:
    return [float("a" in one.lower()) for one in completions]


def from_messages(completions: list[Any]) -> list[float]:
    return [float("a" in one[0]["content"]) for one in completions]


@pytest.mark.parametrize(
    ("reward", "chat", "said"),
    [
        (
            lowered,
            True,
            "a completion is a list of messages in this run, whose text is completion[-1]['content']",
        ),
        (
            from_messages,
            False,
            "a completion is text in this run; with prompts.chat: true it is a list of messages",
        ),
    ],
)
def test_a_reward_for_the_other_form_of_completion_is_told_which_it_is(
    reward: Any, chat: bool, said: str
) -> None:
    with pytest.raises(RewardError, match=re.escape(said)):
        values(one(reward), ["abc", "b"], chat=chat)


def stripped(completions: list[Any], answer: list[Any]) -> list[float]:
    return [float(gold.strip() == "a") for gold in answer]


def number(completions: list[Any], answer: list[Any]) -> list[float]:
    return [float(gold) for gold in answer]


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("reward", [stripped, number])
def test_other_faults_are_not_put_down_to_the_form(reward: Any, chat: bool) -> None:
    with pytest.raises(RewardError, match="failed on rollout 0") as caught:
        values(one(reward), ["abc", "b"], chat=chat, columns={"answer": [None, None]})
    assert "a completion is" not in str(caught.value)
