from types import ModuleType

import numpy as np

from groupwise.objective.aggregations import token_mean as module
from groupwise.objective.aggregations.token_mean import token_mean


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    # 1 + 3 + 5 + 7 = 16 tokens
    assert module.token_mean(np.array([1, 3, 5, 7])).tolist() == [0.0625] * 4
    # Case a03: a masked rollout has no trainable tokens and stays out of the divisor: 1 / 4, not 1 / 16
    assert module.token_mean(np.array([4, 0])).tolist() == [0.25, 0.0]
    assert module.token_mean(np.array([0, 0])).tolist() == [0.0, 0.0]


def test_hand_worked_numbers() -> None:
    hand_worked(module)


def test_every_token_weighs_the_same_and_all_sum_to_one() -> None:
    tokens = np.array([2, 200])
    weights = token_mean(tokens)
    assert weights[0] == weights[1]
    np.testing.assert_allclose((tokens * weights).sum(), 1.0, rtol=1e-15)


def test_no_rollouts_at_all() -> None:
    assert token_mean(np.array([], dtype=np.int64)).tolist() == []
