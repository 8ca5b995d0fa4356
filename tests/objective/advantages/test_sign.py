from types import ModuleType

import numpy as np
import pytest

from groupwise.objective.advantages import sign as module
from groupwise.objective.advantages.leave_one_out import leave_one_out
from groupwise.objective.advantages.sign import sign


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    # The mean of 1, 2, 4, 2 is 2.25
    assert module.sign(np.array([1.0, 2.0, 4.0, 2.0])).tolist() == [-1.0, -1.0, 1.0, -1.0]
    # The mean of 0.1, 0.2, 0.3 is 0.2, in float64 0.20000000000000004
    assert module.sign(np.array([0.1, 0.2, 0.3])).tolist() == [-1.0, 0.0, 1.0]
    # 1e-6 of the largest, 1000, is 0.001: 500.0005 is within it of the mean 500.0001667, 500.01 is not of 500.0033
    assert module.sign(np.array([0.0, 500.0005, 1000.0])).tolist() == [-1.0, 0.0, 1.0]
    assert module.sign(np.array([0.0, 500.01, 1000.0])).tolist() == [-1.0, 1.0, 1.0]
    assert module.sign(np.array([0.0, 499.99, 1000.0])).tolist() == [-1.0, -1.0, 1.0]
    # Negative rewards: the largest magnitude is 1000; and here 2 is the mean exactly
    assert module.sign(np.array([-1000.0, -500.0005, 0.0])).tolist() == [-1.0, 0.0, 1.0]
    assert module.sign(np.array([1.0, 2.0, 3.0])).tolist() == [-1.0, 0.0, 1.0]
    # The border itself: mean 0, and 2e-6 of the larger is 1e-6 x 2: not beyond it
    assert module.sign(np.array([-2.0, 2.0, 2e-6, -2e-6])).tolist() == [-1.0, 1.0, 0.0, 0.0]
    assert module.sign(np.array([0.3] * 8)).tolist() == [0.0] * 8


def test_hand_worked_numbers() -> None:
    hand_worked(module)


@pytest.mark.parametrize("size", [2, 3, 8, 64])
def test_it_is_the_sign_of_the_leave_one_out_advantage(size: int) -> None:
    rewards = np.random.default_rng(size).normal(size=size)
    assert sign(rewards).tolist() == np.sign(leave_one_out(rewards)).tolist()
