from types import ModuleType

import numpy as np
import pytest

from groupwise.objective.advantages import group_mean as module
from groupwise.objective.advantages.group_mean import group_mean


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    # mean (1 + 2 + 4 + 2) / 4 = 2.25
    assert module.group_mean(np.array([1.0, 2.0, 4.0, 2.0])).tolist() == [-1.25, -0.25, 1.75, -0.25]
    # Case a07, no division by a std: [0, 1] gives -+0.5 and [0, 10] gives -+5.
    assert module.group_mean(np.array([0.0, 1.0])).tolist() == [-0.5, 0.5]
    assert module.group_mean(np.array([0.0, 10.0])).tolist() == [-5.0, 5.0]


def test_hand_worked_numbers() -> None:
    hand_worked(module)


@pytest.mark.parametrize("size", [7, 8, 16])
@pytest.mark.parametrize("reward", [0.1, 0.3, 0.7, 1 / 3, 0.95])
def test_equal_rewards_give_exactly_zero(size: int, reward: float) -> None:
    # Case a06. Seven times 0.1 sums to 0.7 less a bit, so the plain difference from the mean is not 0.
    assert group_mean(np.full(size, reward)).tolist() == [0.0] * size


def test_one_low_reward_among_equal_high_ones() -> None:
    # mean 0.95 x 7/8 = 0.83125; 0 - 0.83125, 0.95 - 0.83125 = 0.11875
    np.testing.assert_allclose(
        group_mean(np.array([0.0] + [0.95] * 7)), [-0.83125] + [0.11875] * 7, atol=1e-12
    )


def test_a_group_of_one_gets_zero() -> None:
    assert group_mean(np.array([3.0])).tolist() == [0.0]
    assert group_mean(np.array([])).tolist() == []


def test_unlike_the_zscore_a_wider_spread_gives_larger_advantages() -> None:
    narrow = np.array([0.4, 0.6, 0.5])
    np.testing.assert_allclose(group_mean(10 * narrow), 10 * group_mean(narrow), rtol=1e-12, atol=1e-15)


def test_integers_are_taken_and_the_rewards_are_not_changed() -> None:
    rewards = np.array([0, 1])
    assert group_mean(rewards).tolist() == [-0.5, 0.5]
    assert rewards.tolist() == [0, 1]
