from types import ModuleType

import numpy as np
import pytest

from groupwise.objective.advantages import greedy_baseline as module
from groupwise.objective.advantages.greedy_baseline import greedy_baseline


def hand_worked(module: ModuleType) -> None:
    # Greedy earns 1: 0 - 1 = -1, 1 - 1 = 0, 3 - 1 = 2.
    found = module.greedy_baseline(np.array([0.0, 1.0, 3.0]), np.array([1.0, 1.0, 1.0]))
    assert found.tolist() == [-1.0, 0.0, 2.0]


def test_hand_worked() -> None:
    hand_worked(module)


def test_one_rollout_is_enough() -> None:
    assert greedy_baseline(np.array([0.25]), np.array([0.75])).tolist() == [-0.5]


def test_equal_rewards_are_exactly_zero_in_float32_too() -> None:
    rewards = np.full(8, np.float32(0.3), dtype=np.float64)
    assert greedy_baseline(rewards, rewards).tolist() == [0.0] * 8


def test_the_same_added_to_all_changes_nothing_and_order_is_kept() -> None:
    rng = np.random.default_rng(0)
    rewards, greedy = rng.normal(size=6), np.full(6, 0.4)
    plain = greedy_baseline(rewards, greedy)
    assert greedy_baseline(rewards + 5, greedy + 5).tolist() == pytest.approx(plain.tolist(), abs=1e-12)
    assert greedy_baseline(rewards[::-1], greedy).tolist() == plain[::-1].tolist()
