import math
from types import ModuleType

import pytest

from groupwise.objective.kl_controllers import warmup_decay as module


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""

    def betas(steps: list[int], **settings: float) -> list[float]:
        return [module.warmup_decay(9.0, 0.1, s, math.nan, math.nan, **settings) for s in steps]

    # Rise to 0.1 over 4 steps: 0.025, 0.05, 0.075, 0.1; then to 0.02 over 10: 0.1 - 0.08 k / 10
    found = betas([0, 1, 2, 3, 4, 5, 9, 14, 100], target=0.02, warmup_steps=4, decay_steps=10)
    assert found == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.092, 0.06, 0.02, 0.02], rel=1e-12)
    # By default 0.02 after 1,000 steps without a rise: 0.1, 0.06 halfway
    assert betas([0, 500, 1000, 5000]) == pytest.approx([0.1, 0.06, 0.02, 0.02], rel=1e-12)
    # Held for 3 after a rise of 2: 0.05, 0.1, then 0.1 up to step 5, from there 0.1 - 0.08 k / 10
    found = betas([0, 1, 2, 4, 5, 6, 15], target=0.02, warmup_steps=2, hold_steps=3, decay_steps=10)
    assert found == pytest.approx([0.05, 0.1, 0.1, 0.1, 0.1, 0.092, 0.02], rel=1e-12)
    # A target above the start is a rise: 0.1 + 0.2 x 3 / 10
    assert betas([3], target=0.3, decay_steps=10) == pytest.approx([0.16], rel=1e-12)


def test_hand_worked_numbers() -> None:
    hand_worked(module)
