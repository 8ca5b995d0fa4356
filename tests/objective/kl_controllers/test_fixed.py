import math
from types import ModuleType

from groupwise.objective.kl_controllers import fixed as module


def hand_worked(module: ModuleType) -> None:
    """Whatever is measured, beta is what was given."""
    assert module.fixed(0.5, 0.04, 7, 3.0, 40.0) == 0.04
    assert module.fixed(0.04, 0.04, 0, math.nan, math.nan) == 0.04


def test_hand_worked_numbers() -> None:
    hand_worked(module)
