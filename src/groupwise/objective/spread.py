"""When a group's rewards are all equal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RELATIVE_TOLERANCE = 1e-6
"""Rewards that differ by less than this share of the largest are equal: float32 sums are off by up to 2.4e-7."""


def zero_spread(rewards_G: NDArray[np.float64]) -> bool:
    """True when the rewards of a group do not differ, whatever their value.

    Decided on the rewards themselves. Eight float32 rewards of 0.3 have a computed std of 3e-8, and dividing that
    rounding error by itself would hand every rollout an advantage near 1.

    Args:
        rewards_G: shape [G], finite.
    """
    if len(rewards_G) < 2:
        return True
    spread = float(np.max(rewards_G) - np.min(rewards_G))
    return spread <= RELATIVE_TOLERANCE * float(np.max(np.abs(rewards_G)))
