from types import ModuleType

import numpy as np

from groupwise.objective.advantages import rank as module
from groupwise.objective.advantages.rank import rank


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    # Places 0, 1.5, 3, 1.5 of 3: 0 - 0.5; 0.5 - 0.5; 1 - 0.5; 0
    np.testing.assert_allclose(module.rank(np.array([1.0, 2.0, 4.0, 2.0])), [-0.5, 0.0, 0.5, 0.0], atol=1e-12)
    # Five: places 4, 0.5, 0.5, 2, 3 of 4
    np.testing.assert_allclose(
        module.rank(np.array([9.0, -1.0, -1.0, 0.0, 1.0])), [0.5, -0.375, -0.375, 0.0, 0.25], atol=1e-12
    )
    # Equal up to 1e-6 of the largest magnitude, 1000: 0.0005 and 0.0014 are one place, 0.004 another
    np.testing.assert_allclose(
        module.rank(np.array([0.0005, 0.0014, 0.004, -1000.0])),
        [0.0, 0.0, 0.5, -0.5],
        atol=1e-12,
    )
    # Z-score above a population std of 1: sqrt(4.75 / 4) = 1.0897 is above 1 and below 1.1 (population, not sample)
    zscores = [-0.993399, -0.198680, 1.390759, -0.198680]
    np.testing.assert_allclose(
        module.rank(np.array([1.0, 2.0, 4.0, 2.0]), zscore_above=1.0), zscores, atol=1e-6
    )
    np.testing.assert_allclose(
        module.rank(np.array([1.0, 2.0, 4.0, 2.0]), zscore_above=1.1), [-0.5, 0.0, 0.5, 0.0], atol=1e-12
    )
    # At the border itself it is still the rank: deviations +-1, population std 1
    assert module.rank(np.array([1.0, 3.0]), zscore_above=1.0).tolist() == [-0.5, 0.5]
    assert module.rank(np.array([0.3] * 8)).tolist() == [0.0] * 8


def test_hand_worked_numbers() -> None:
    hand_worked(module)


def test_only_the_order_counts() -> None:
    rng = np.random.default_rng(0)
    for size in (2, 3, 8, 33):
        rewards = rng.integers(0, 6, size).astype(np.float64)
        advantages = rank(rewards)
        assert abs(advantages.sum()) < 1e-12
        np.testing.assert_allclose(rank(np.exp(rewards)), advantages, atol=1e-12)
        order = rng.permutation(size)
        np.testing.assert_allclose(rank(rewards[order]), advantages[order], atol=1e-12)
        if len(set(rewards)) > 1:
            assert -0.5 <= advantages.min() < 0 < advantages.max() <= 0.5
