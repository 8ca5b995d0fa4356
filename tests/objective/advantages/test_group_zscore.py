from types import ModuleType

import numpy as np
import pytest

from groupwise.objective.advantages import group_zscore as module
from groupwise.objective.advantages.group_zscore import group_zscore


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    estimate = module.group_zscore
    rewards = np.array([1.0, 2.0, 4.0, 2.0])
    # mean 9/4 = 2.25; deviations -1.25, -0.25, 1.75, -0.25; their squares 1.5625 + 0.0625 + 3.0625 + 0.0625 = 4.75
    # sample: sqrt(4.75 / 3) = 1.2583057; -1.25 / 1.2583057 = -0.993399, -0.198680, 1.390759, -0.198680
    np.testing.assert_allclose(
        estimate(rewards, std="sample", eps=0.0), [-0.993399, -0.198680, 1.390759, -0.198680], atol=1e-6
    )
    # population: sqrt(4.75 / 4) = 1.0897247; -1.25 / 1.0897247 = -1.147079, -0.229416, 1.605910, -0.229416
    np.testing.assert_allclose(
        estimate(rewards, std="population", eps=0.0), [-1.147079, -0.229416, 1.605910, -0.229416], atol=1e-6
    )
    # The default is the sample std with eps 1e-4: -1.25 / 1.2584057 = -0.993320, ..., 1.75 / 1.2584057 = 1.390649
    np.testing.assert_allclose(estimate(rewards), [-0.993320, -0.198664, 1.390649, -0.198664], atol=1e-6)
    # eps is added to the std: deviations -1, 1; sample std sqrt(2); 1 / (sqrt(2) + 1) = sqrt(2) - 1 = 0.414214
    np.testing.assert_allclose(estimate(np.array([0.0, 2.0]), eps=1.0), [-0.414214, 0.414214], atol=1e-6)
    # population std 1; 1 / (1 + 1) = 0.5
    np.testing.assert_allclose(
        estimate(np.array([0.0, 2.0]), std="population", eps=1.0), [-0.5, 0.5], atol=1e-12
    )


def test_hand_worked_numbers() -> None:
    hand_worked(module)


def test_published_figures_to_three_digits() -> None:
    rewards = np.array([1.0, 2.0, 4.0, 2.0])
    assert [round(a, 3) for a in group_zscore(rewards)] == [-0.993, -0.199, 1.391, -0.199]
    assert [round(a, 3) for a in group_zscore(rewards, std="population")] == [-1.147, -0.229, 1.606, -0.229]


@pytest.mark.parametrize("size", [7, 8, 16])
@pytest.mark.parametrize("reward", [0.1, 0.3, 0.7, 1 / 3, 0.95, -0.3, 0.0, 1e-8, 1e8])
@pytest.mark.parametrize("std", ["sample", "population"])
def test_equal_rewards_give_exactly_zero(size: int, reward: float, std: str) -> None:
    # Case a06: in float32 eight rewards of 0.3 have a std of 3.2e-8, and 0.3 less their mean divided by that is 0.71.
    for dtype in (np.float32, np.float64):
        advantages = group_zscore(np.full(size, reward, dtype=dtype).astype(np.float64), std=std, eps=1e-8)
        assert advantages.tolist() == [0.0] * size
        noisy = np.full(size, reward, dtype=np.float32) * (
            1 + np.finfo(np.float32).eps * (np.arange(size) % 2)
        )
        assert group_zscore(noisy.astype(np.float64), std=std, eps=1e-8).tolist() == [0.0] * size


def test_one_low_reward_among_equal_high_ones() -> None:
    # Case a06: [0, 0.95 x 7] has mean 7/8 of 0.95; deviations -7/8 and 1/8 of it; sum of squares 49/64 + 7/64 = 7/8;
    # sample std sqrt(7/8 / 7) = sqrt(1/8) of it; so -7/8 / sqrt(1/8) = -7 / sqrt(8) = -2.474874, and 1 / sqrt(8).
    rewards = np.array([0.0] + [0.95] * 7)
    np.testing.assert_allclose(group_zscore(rewards, eps=0.0), [-2.474874] + [0.353553] * 7, atol=1e-6)


def test_the_scale_of_rewards_does_not_matter_beside_eps() -> None:
    # Case a07, scope group: [0, 1] and [0, 10] both give -+ 0.5 / sqrt(0.5) = 0.7071 and -+ 5 / sqrt(50) = 0.7071.
    for rewards in ([0.0, 1.0], [0.0, 10.0]):
        np.testing.assert_allclose(group_zscore(np.array(rewards), eps=0.0), [-0.707107, 0.707107], atol=1e-6)


def test_a_group_of_one_gets_zero_and_not_nan() -> None:
    # Case a05: the sample std of one reward divides 0 by 0.
    assert group_zscore(np.array([3.0])).tolist() == [0.0]
    assert group_zscore(np.array([])).tolist() == []


def test_advantages_sum_to_zero_and_follow_their_rewards() -> None:
    rng = np.random.default_rng(0)
    for size in (2, 5, 8, 64):
        rewards = rng.normal(size=size) * 10 ** rng.uniform(-3, 3)
        advantages = group_zscore(rewards)
        assert abs(advantages.sum()) < 1e-12 * size
        order = rng.permutation(size)
        np.testing.assert_allclose(group_zscore(rewards[order]), advantages[order], rtol=1e-12, atol=1e-13)
        assert (np.argsort(advantages) == np.argsort(rewards)).all()


def test_integers_are_taken_and_the_rewards_are_not_changed() -> None:
    rewards = np.array([0, 1])
    assert group_zscore(rewards, eps=0.0).dtype == np.float64
    assert rewards.tolist() == [0, 1]
