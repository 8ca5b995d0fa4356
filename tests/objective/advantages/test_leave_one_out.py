from types import ModuleType

import numpy as np
import pytest

from groupwise.objective.advantages import leave_one_out as module
from groupwise.objective.advantages.group_mean import group_mean
from groupwise.objective.advantages.leave_one_out import leave_one_out


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    # 1 - (2 + 4 + 2) / 3 = -5/3; 2 - 7/3 = -1/3; 4 - 5/3 = 7/3; 2 - 7/3 = -1/3
    np.testing.assert_allclose(
        module.leave_one_out(np.array([1.0, 2.0, 4.0, 2.0])), [-5 / 3, -1 / 3, 7 / 3, -1 / 3], rtol=1e-12
    )
    # Case a06: 0 - 0.95 = -0.95; 0.95 - 6 x 0.95 / 7 = 0.95 / 7
    np.testing.assert_allclose(
        module.leave_one_out(np.array([0.0] + [0.95] * 7)), [-0.95] + [0.95 / 7] * 7, rtol=1e-12
    )
    assert module.leave_one_out(np.array([3.0])).tolist() == [0.0]
    assert module.leave_one_out(np.array([0.3] * 8)).tolist() == [0.0] * 8


def test_hand_worked_numbers() -> None:
    hand_worked(module)


@pytest.mark.parametrize("size", [2, 3, 8, 64])
def test_it_is_a_multiple_of_the_distance_from_the_mean(size: int) -> None:
    rewards = np.random.default_rng(size).normal(size=size)
    np.testing.assert_allclose(
        leave_one_out(rewards), group_mean(rewards) * size / (size - 1), rtol=1e-10, atol=1e-13
    )


def test_a_baseline_does_not_hold_its_own_reward() -> None:
    rewards = np.array([1.0, 2.0, 4.0, 2.0])
    raised = rewards + np.array([0.0, 0.0, 1.0, 0.0])
    # Raising r_3 by 1 raises its own advantage by 1, and each of the others falls by 1/3.
    np.testing.assert_allclose(
        leave_one_out(raised) - leave_one_out(rewards), [-1 / 3, -1 / 3, 1.0, -1 / 3], rtol=1e-12
    )
