from types import ModuleType

import numpy as np

from groupwise.objective.aggregations import sequence_sum as module
from groupwise.objective.aggregations.sequence_sum import sequence_sum


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    # Four rollouts of which three have tokens: 1 / 3 for a token of each, whatever their lengths
    np.testing.assert_allclose(
        module.sequence_sum(np.array([1, 3, 0, 50])), [1 / 3, 1 / 3, 0.0, 1 / 3], rtol=1e-15
    )
    assert module.sequence_sum(np.array([0, 0])).tolist() == [0.0, 0.0]


def test_hand_worked_numbers() -> None:
    hand_worked(module)


def test_the_weights_sum_to_the_mean_length() -> None:
    tokens = np.array([1, 3, 5, 7])  # mean 4
    assert (tokens * sequence_sum(tokens)).sum() == 4.0


def test_no_rollouts_at_all() -> None:
    assert sequence_sum(np.array([], dtype=np.int64)).tolist() == []
