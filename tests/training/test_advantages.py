from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from groupwise.config.objective import ObjectiveConfig
from groupwise.errors import TrainingError
from groupwise.objective.advantages.gae import gae
from groupwise.objective.advantages.greedy_baseline import greedy_baseline
from groupwise.objective.advantages.group_mean import group_mean
from groupwise.objective.estimator import Estimator
from groupwise.records import Baseline, Group, Prompt, Rollout, StopReason, Verdict
from groupwise.training.advantages import advantages, judge, penalised, value_targets


def group(
    rewards: list[float | None],
    truncated: tuple[int, ...] = (),
    untrained: dict[int, list[bool]] | None = None,
) -> Group:
    prompt = Prompt(id="a:0", source="a", messages=None, text="x", token_ids=np.array([1], dtype=np.int32))
    rollouts = tuple(
        Rollout(
            prompt_id="a:0",
            group_index=i,
            token_ids_T=np.array([5, 6], dtype=np.int32),
            trainable_T=np.array((untrained or {}).get(i, [True, True])),
            sampler_logprobs_T=np.zeros(2, dtype=np.float32),
            kept_mass_T=None,
            entropy_T=None,
            stop_reason=StopReason.LENGTH if i in truncated else StopReason.STOP,
            policy_version=0,
            text="",
        )
        for i in range(len(rewards))
    )
    verdicts = tuple(Verdict(reward=r, parts={}, failure=None if r is not None else "gone") for r in rewards)
    return Group(prompt=prompt, rollouts_G=rollouts, verdicts_G=verdicts)


def with_greedy(one: Group, reward: float | None) -> Group:
    verdict = Verdict(reward=reward, parts={}, failure=None if reward is not None else "gone")
    return replace(one, greedy=Baseline(rollout=one.rollouts_G[0], verdict=verdict))


def estimated(
    batch: list[Group], objective: ObjectiveConfig, function: Callable[..., Any] = group_mean, **evidence: Any
) -> list[list[list[float]]]:
    judged = [judge(one, objective) for one in batch]
    return [[a.tolist() for a in arrays] for arrays in advantages(judged, Estimator(function), **evidence)]


def test_an_absent_reward_is_left_out_of_the_mean_and_the_loss() -> None:
    # mean of 1 and 3 is 2; the rollout without a reward must not count as 0 (which would give a mean of 4/3).
    one = group([1.0, None, 3.0])
    assert estimated([one], ObjectiveConfig()) == [[[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]]]
    judged = judge(one, ObjectiveConfig())
    assert judged.in_loss_G.tolist() == judged.counted_G.tolist() == [True, False, True]
    assert not judged.zero_spread


def test_a_masked_truncated_rollout_still_counts_in_the_mean() -> None:
    # mean of 0, 1, 5 is 2; the advantage of 3 that is masked is 0 in the record.
    one = group([0.0, 1.0, 5.0], truncated=(2,))
    assert estimated([one], ObjectiveConfig(truncated="mask")) == [[[-2.0, -2.0], [-1.0, -1.0], [0.0, 0.0]]]
    judged = judge(one, ObjectiveConfig(truncated="mask"))
    assert judged.in_loss_G.tolist() == [True, True, False]
    assert judged.counted_G.all()
    assert judge(one, ObjectiveConfig(truncated="keep")).in_loss_G.all()


def test_zero_spread_is_kept_or_dropped_by_choice() -> None:
    one = group([0.3, 0.3, 0.3])
    kept, dropped = (judge(one, ObjectiveConfig(zero_spread=choice)) for choice in ("keep", "drop"))
    assert kept.zero_spread
    assert dropped.zero_spread
    assert kept.in_loss_G.all()
    assert not dropped.in_loss_G.any()
    for choice in ("keep", "drop"):
        assert estimated([one], ObjectiveConfig(zero_spread=choice)) == [[[0.0, 0.0]] * 3]


def test_no_reward_at_all() -> None:
    one = group([None, None])
    assert estimated([one], ObjectiveConfig()) == [[[0.0, 0.0], [0.0, 0.0]]]
    assert not judge(one, ObjectiveConfig()).in_loss_G.any()


def test_groups_never_mix_unless_the_estimator_sees_the_batch() -> None:
    # Groups [0, 2] and [10, 14]: group means 1 and 12; the mean of all four is 6.5.
    batch = [group([0.0, 2.0]), group([10.0, 14.0])]
    assert estimated(batch, ObjectiveConfig()) == [[[-1.0] * 2, [1.0] * 2], [[-2.0] * 2, [2.0] * 2]]

    def less_all(rewards_N: np.ndarray) -> np.ndarray:
        return rewards_N - rewards_N.mean()

    assert estimated(batch, ObjectiveConfig(), less_all) == [
        [[-6.5] * 2, [-4.5] * 2],
        [[3.5] * 2, [7.5] * 2],
    ]


def test_an_estimator_over_tokens_sees_trained_tokens_of_rollouts_in_the_loss() -> None:
    seen: list[list[float]] = []

    def to_go(rewards_NT: tuple[np.ndarray, ...]) -> list[np.ndarray]:
        seen.extend(rewards_T.tolist() for rewards_T in rewards_NT)
        return [10.0 * i + np.arange(len(rewards_T)) for i, rewards_T in enumerate(rewards_NT, start=1)]

    one = group([7.0, 5.0, 3.0], truncated=(1,), untrained={2: [True, False]})
    found = estimated([one], ObjectiveConfig(truncated="mask"), to_go)
    assert seen == [[0.0, 7.0], [3.0]]  # the reward is earned with the last trained token
    assert found == [[[10.0, 11.0], [0.0, 0.0], [20.0, 0.0]]]


def test_values_and_greedy_rewards_reach_those_that_ask() -> None:
    def critic(rewards_NT: tuple[np.ndarray, ...], values_NT: tuple[np.ndarray, ...]) -> list[np.ndarray]:
        return [r - v for r, v in zip(rewards_NT, values_NT, strict=True)]

    one = group([7.0, None], untrained={0: [False, True]})
    values = [[np.array([np.nan, 2.0], dtype=np.float32), np.array([np.nan, np.nan], dtype=np.float32)]]
    assert estimated([one], ObjectiveConfig(), critic, values=values) == [[[0.0, 5.0], [0.0, 0.0]]]

    def greedy(rewards_G: np.ndarray, greedy_rewards_G: np.ndarray) -> np.ndarray:
        return rewards_G - greedy_rewards_G

    batch = [group([7.0]), group([1.0, None])]
    beside = [with_greedy(one, reward) for one, reward in zip(batch, (4.0, 2.0), strict=True)]
    assert estimated(beside, ObjectiveConfig(), greedy) == [
        [[3.0, 3.0]],
        [[-1.0, -1.0], [0.0, 0.0]],
    ]


def with_values(one: Group, values: list[tuple[float | None, ...] | None]) -> Group:
    verdicts = [
        v if given is None else replace(v, token_rewards=given, reward=sum(x or 0.0 for x in given))
        for v, given in zip(one.verdicts_G, values, strict=True)
    ]
    return replace(one, verdicts_G=tuple(verdicts))


def test_values_along_a_response_are_credited_to_the_tokens_before_them() -> None:
    # Values 1, 3 | 5 (one number, at the end): mean 3: -2, 0 | 2; to go: -2, 0 | 2, 2.
    one = with_values(group([4.0, 5.0]), [(1.0, 3.0), None])
    assert estimated([one], ObjectiveConfig(), credit="process") == [[[-2.0, 0.0], [2.0, 2.0]]]
    # Summed first: 4 and 5, mean 4.5.
    assert estimated([one], ObjectiveConfig(), credit="outcome") == [[[-0.5, -0.5], [0.5, 0.5]]]


def test_a_value_of_a_token_that_is_not_trained_goes_to_the_one_before_it_or_the_first() -> None:
    def as_given(rewards_NT: tuple[np.ndarray, ...]) -> list[np.ndarray]:
        return list(rewards_NT)

    one = group([3.0, 7.0], untrained={0: [True, False], 1: [False, True]})
    one = with_values(one, [(1.0, 2.0), (3.0, 4.0)])
    assert estimated([one], ObjectiveConfig(), as_given) == [[[3.0, 0.0], [0.0, 7.0]]]


def test_values_that_say_nothing_are_one_reward_of_zero() -> None:
    one = with_values(group([0.0, 2.0]), [(None, None), (2.0, None)])
    # values 0 (at the end) and 2: mean 1: -1 for both tokens; 1 for the first token alone
    assert estimated([one], ObjectiveConfig()) == [[[-1.0, -1.0], [1.0, 0.0]]]


def test_equal_sums_of_other_values_still_have_spread_where_values_are_credited() -> None:
    one = with_values(group([4.0, 4.0]), [(1.0, 3.0), (3.0, 1.0)])
    assert not judge(one, ObjectiveConfig()).zero_spread
    assert judge(one, ObjectiveConfig(credit="outcome")).zero_spread
    even = with_values(group([2.0, 2.0]), [(1.0, 1.0), (1.0, 1.0)])
    assert judge(even, ObjectiveConfig()).zero_spread
    assert judge(with_values(group([4.0, None]), [(1.0, 3.0), None]), ObjectiveConfig()).zero_spread


def test_the_soft_penalty_is_a_part_of_its_own() -> None:
    # Limit 2, buffer 2, penalty 0.5: two tokens are at the limit: -0.5.
    one = with_values(group([1.0, 3.0, None]), [None, (1.0, 2.0), None])
    objective = ObjectiveConfig(truncated="penalise", overlong_buffer=2, overlong_penalty=0.5)
    first, second, third = penalised(one.verdicts_G, one.rollouts_G, objective, limits=[2] * 3)
    assert (first.reward, first.parts, first.terms) == (0.5, {"soft_overlong": -0.5}, {"soft_overlong": -0.5})
    assert (second.reward, second.token_rewards) == (2.5, (1.0, 1.5))
    assert third is one.verdicts_G[2]
    # Half the buffer; and by default a fifth of the limit: (10 - 2 - 2) / 2 is not yet reached.
    wider = ObjectiveConfig(truncated="penalise", overlong_buffer=4)
    assert penalised(one.verdicts_G, one.rollouts_G, wider, limits=[4] * 3)[0].reward == 0.5
    default = ObjectiveConfig(truncated="penalise")
    assert penalised(one.verdicts_G, one.rollouts_G, default, limits=[10] * 3)[0].reward == 1.0
    assert penalised(one.verdicts_G, one.rollouts_G, ObjectiveConfig(), limits=[2] * 3) == list(
        one.verdicts_G
    )


@pytest.mark.parametrize("wrong", [np.array([np.nan, 1.0]), np.array([1.0]), [np.zeros(2), np.zeros(3)]])
def test_a_wrong_estimator_is_named(wrong: Any) -> None:
    def mine(rewards_G: np.ndarray) -> Any:
        return wrong

    with pytest.raises(
        TrainingError,
        match=r"the advantage mine \(test_advantages.py, line \d+\) gave .*\(rewards \[1\. 2\.\]\)",
    ):
        estimated([group([1.0, 2.0])], ObjectiveConfig(), mine)


def test_a_greedy_baseline_counts_in_the_spread_and_is_needed() -> None:
    equal, single = group([0.3, 0.3]), group([0.3])
    assert judge(equal, ObjectiveConfig()).zero_spread
    assert judge(with_greedy(equal, 0.3), ObjectiveConfig()).zero_spread
    assert not judge(with_greedy(equal, 0.5), ObjectiveConfig()).zero_spread
    assert not judge(with_greedy(single, 0.5), ObjectiveConfig()).zero_spread
    # Without its reward there is nothing to compare with: the group is left out, not compared with 0.
    lost = judge(with_greedy(equal, None), ObjectiveConfig())
    assert not lost.in_loss_G.any()
    found = estimated([with_greedy(equal, None), with_greedy(equal, 0.5)], ObjectiveConfig(), greedy_baseline)
    assert found[0] == [[0.0, 0.0]] * 2
    assert found[1][0] == pytest.approx([-0.2, -0.2])


def test_what_a_critic_learns_stands_at_trained_tokens_in_the_loss() -> None:
    batch = [group([1.0, None, 5.0], truncated=(2,), untrained={0: [False, True]})]
    judged = [judge(one, ObjectiveConfig(truncated="mask")) for one in batch]
    values = [[np.array([9.0, 2.0], dtype=np.float32)] + [np.full(2, np.nan, dtype=np.float32)] * 2]
    penalties = [(np.array([7.0, 0.25]), np.zeros(2), np.zeros(2))]
    [found] = value_targets(judged, Estimator(gae, {"lam": 1.0}), penalties=penalties, values=values)
    # Of the first only the second token is trained: its target is 1 - 0.25.
    assert np.isnan(found[0][0])
    assert found[0][1] == 0.75
    assert np.isnan(found[1]).all()
    assert np.isnan(found[2]).all()
    assert all(array.dtype == np.float32 for array in found)
