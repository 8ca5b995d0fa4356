import math
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.errors import RewardError
from tests.rewards.examples import one, pairs, values


@pytest.mark.parametrize(
    "returned",
    [
        [1, 0.5],
        (1.0, 0.5),
        np.array([1.0, 0.5], dtype=np.float32),
        torch.tensor([1.0, 0.5], dtype=torch.bfloat16),
        [torch.tensor(1.0), np.float64(0.5)],
        [True, np.float16(0.5)],
    ],
)
def test_numbers_of_every_kind_are_taken(returned: Any) -> None:
    verdicts = one(lambda completions: returned).score(*pairs(["a", "b"]))
    assert [v.reward for v in verdicts] == [1.0, 0.5]
    assert all(type(v.reward) is float for v in verdicts)


@pytest.mark.parametrize(
    "policy", [{}, {"on_failure": "drop"}, {"on_failure": "value", "failure_value": 0.0}]
)
@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ([1.0], "1 values for 2 rollouts"),
        ([1.0, 2.0, 3.0], "3 values for 2 rollouts"),
        ([], "0 values for 2 rollouts"),
        (1.0, "a float for 2 rollouts"),
        (None, "nothing for 2 rollouts"),
        ("ab", "a str for 2 rollouts"),
        ({0: 1.0, 1: 2.0}, "a dict for 2 rollouts"),
        ((x for x in (1.0, 2.0)), "a generator for 2 rollouts"),
    ],
)
def test_what_cannot_be_told_whose_it_is_ends_the_run(
    policy: dict[str, Any], returned: Any, said: str
) -> None:
    rewards = one(lambda completions: returned, **policy)
    with pytest.raises(RewardError, match=f"the reward 'lambda' returned {said}"):
        values(rewards, ["a", "b"])


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (math.nan, "it gave nan; None is for a rollout that the reward does not apply to"),
        (math.inf, "it gave inf"),
        (torch.tensor(-math.inf), "it gave -inf"),
        ("0.5", "it gave the text '0.5', not a number"),
        ([0.5], "it gave 1 values for the 2 tokens of its completion_ids"),
        (np.array([0.5]), "it gave 1 values for the 2 tokens of its completion_ids"),
        ({0: 0.5}, "it gave a dict where one number belongs"),
        (10**400, "it gave a int that is no number"),
        (object(), "it gave a object that is no number"),
    ],
)
def test_a_value_that_is_no_finite_number_is_a_failure_of_its_rollout(bad: Any, said: str) -> None:
    def reward(completions: list[str]) -> list[Any]:
        return [bad if c == "odd" else 1.0 for c in completions]

    texts = ["a", "odd", "b"]
    with pytest.raises(RewardError) as caught:
        values(one(reward), texts)
    assert f"the reward 'reward' failed on rollout 1 (completion 'odd'): {said}" in str(caught.value)
    verdicts = one(reward, on_failure="drop").score(*pairs(texts))
    assert [v.reward for v in verdicts] == [1.0, None, 1.0]
    assert verdicts[1].parts == {"reward": None}
    assert verdicts[1].failure is not None
    assert said in verdicts[1].failure
    verdicts = one(reward, on_failure="value", failure_value=-2.0, weight=0.5).score(*pairs(texts))
    assert [v.reward for v in verdicts] == [0.5, -1.0, 0.5]  # 0.5 x -2
    assert verdicts[1].parts == {"reward": None}  # the stand-in is not what the reward said
    assert verdicts[1].failure is not None


def test_a_coroutine_that_nobody_awaited_is_named() -> None:
    async def later() -> float:
        return 1.0

    reward = one(
        lambda completions: [later() if "b" in said else 1.0 for said in completions], on_failure="drop"
    )
    first, second = reward.score(*pairs(["a", "b"]))
    assert first.reward == 1.0
    assert second.failure is not None
    assert "it gave a coroutine where a number belongs; await it" in second.failure


def test_zero_is_a_value() -> None:
    verdict = one(lambda completions: [0.0]).score(*pairs(["a"]))[0]
    assert (verdict.reward, verdict.parts, verdict.failure) == (0.0, {"lambda": 0.0}, None)


def test_no_rollouts_need_no_call() -> None:
    assert one(lambda completions: 1 / 0).score([], []) == []
