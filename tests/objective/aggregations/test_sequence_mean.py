from types import ModuleType

import numpy as np

from groupwise.objective.aggregations import sequence_mean as module
from groupwise.objective.aggregations.sequence_mean import sequence_mean


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    # Two rollouts of 2 and 200 tokens (case n07): 1 / (2 x 2) = 0.25 and 1 / (2 x 200) = 0.0025
    np.testing.assert_allclose(module.sequence_mean(np.array([2, 200])), [0.25, 0.0025], rtol=1e-15)
    # A rollout without tokens weighs 0 and does not count: 1 / (2 x 1), 0, 1 / (2 x 4)
    np.testing.assert_allclose(module.sequence_mean(np.array([1, 0, 4])), [0.5, 0.0, 0.125], rtol=1e-15)
    assert module.sequence_mean(np.array([0, 0])).tolist() == [0.0, 0.0]


def test_hand_worked_numbers() -> None:
    hand_worked(module)


def test_every_rollout_weighs_the_same() -> None:
    tokens = np.array([1, 7, 300, 0, 12])
    np.testing.assert_allclose(tokens * sequence_mean(tokens), [0.25, 0.25, 0.25, 0.0, 0.25], rtol=1e-15)


def test_no_rollouts_at_all() -> None:
    assert sequence_mean(np.array([], dtype=np.int64)).tolist() == []
