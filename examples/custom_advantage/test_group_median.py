"""Run it with `python -m pytest`, in this folder."""

import numpy as np
from group_median import group_median


def test_by_hand():
    # median of 1, 2, 4, 100 is 3; 1 - 3 = -2, 2 - 3 = -1, 4 - 3 = 1, and 100 - 3 = 97 is held at 5
    assert group_median(np.array([1.0, 2.0, 4.0, 100.0])).tolist() == [-2.0, -1.0, 1.0, 5.0]


def test_the_order_does_not_matter():
    rewards = np.array([0.3, 0.1, 0.9, 0.4])
    assert group_median(rewards[::-1]).tolist() == group_median(rewards)[::-1].tolist()
