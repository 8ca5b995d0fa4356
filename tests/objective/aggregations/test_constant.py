from types import ModuleType

import numpy as np
import pytest

from groupwise.objective.aggregations import constant as module
from groupwise.objective.aggregations.constant import constant


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    # 1 / (4 rollouts x 8 tokens) = 1 / 32, whatever the lengths
    assert module.constant(np.array([1, 3, 5, 7]), length=8).tolist() == [0.03125] * 4
    # A rollout without tokens does not count: 1 / (2 x 10)
    np.testing.assert_allclose(module.constant(np.array([4, 0, 9]), length=10), [0.05, 0.0, 0.05], rtol=1e-15)
    assert module.constant(np.array([0, 0]), length=8).tolist() == [0.0, 0.0]


def test_hand_worked_numbers() -> None:
    hand_worked(module)


def test_the_weights_sum_to_the_mean_length_over_the_constant() -> None:
    tokens = np.array([1, 3, 5, 7])  # mean 4, over 8: 0.5
    assert (tokens * constant(tokens, length=8)).sum() == 0.5


def test_without_a_length_it_says_where_it_comes_from() -> None:
    with pytest.raises(
        ValueError, match=r"needs a length; the configuration fills in rollout\.max_new_tokens"
    ):
        constant(np.array([1, 2]))
