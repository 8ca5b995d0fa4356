from types import ModuleType

import numpy as np
import pytest

from groupwise.objective import spread as module
from groupwise.objective.spread import zero_spread


def hand_worked(module: ModuleType) -> None:
    """Yes and no; whatever stands in for the module must say the same."""
    equal = module.zero_spread
    assert equal(np.array([0.3] * 8))
    assert equal(np.array([5.0]))
    assert equal(np.array([]))
    assert not equal(np.array([0.0, 1.0]))
    assert not equal(np.array([0.0] + [0.95] * 7))
    assert not equal(np.array([-1.0, 1.0]))  # the largest magnitude may be that of a negative reward
    # 1e-6 of the largest magnitude is the border: 1000 +- 0.0004 differ by 0.0008 < 0.001; 1000 +- 0.0006 by 0.0012
    assert equal(np.array([999.9996, 1000.0004]))
    assert not equal(np.array([999.9994, 1000.0006]))
    assert equal(np.array([999.9995, 1000.0005]))  # 0.001 <= 1e-6 x 1000.0005, the larger of the two
    assert equal(np.array([-999.9996, -1000.0004]))
    assert not equal(np.array([-999.9994, -1000.0006]))


def test_hand_worked_answers() -> None:
    hand_worked(module)


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1.0, 1e9])
def test_the_unit_of_rewards_does_not_matter(scale: float) -> None:
    assert zero_spread(scale * np.array([0.3, 0.3 * (1 + 1e-7)]))
    assert not zero_spread(scale * np.array([0.3, 0.3 * (1 + 1e-5)]))


def test_all_zeros_are_equal() -> None:
    assert zero_spread(np.zeros(8))
    assert zero_spread(np.array([0.0, -0.0]))
    assert not zero_spread(np.array([0.0, 1e-300]))


def test_float32_sums_in_another_order_are_equal() -> None:
    # Three parts summed in two orders: (0.1 + 0.3) + 0.5 = 0.9 and 0.1 + (0.3 + 0.5) = 0.90000004 in float32.
    a, b, c = np.float32(0.1), np.float32(0.3), np.float32(0.5)
    assert (a + b) + c != a + (b + c)
    assert zero_spread(np.array([(a + b) + c, a + (b + c)], dtype=np.float64))


def test_the_share_of_groups_without_spread_is_that_of_coin_tosses() -> None:
    # Case n05: p^G + (1 - p)^G with p = 0.1819 is 0.702, 0.449, 0.201, 0.040 at G = 2, 4, 8, 16.
    rng = np.random.default_rng(0)
    for size, share in ((2, 0.702), (4, 0.449), (8, 0.201), (16, 0.040)):
        groups = rng.random((2000, size)) < 0.1819
        assert np.mean([zero_spread(g.astype(np.float64)) for g in groups]) == pytest.approx(share, abs=0.03)
