import math
from types import ModuleType

import pytest

from groupwise.objective.kl_controllers import proportional as module


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""

    def beta(kl_token: float, kl_rollout: float, **settings: object) -> float:
        return module.proportional(0.1, 0.04, 3, kl_token, kl_rollout, **settings)

    # Target 6, gain 0.1, miss held within 0.2: 6.6 / 6 - 1 = 0.1 gives x 1.01; 60 gives x 1.02; 0 gives x 0.98
    assert beta(9.0, 6.6) == pytest.approx(0.101, rel=1e-12)
    assert beta(9.0, 60.0) == pytest.approx(0.102, rel=1e-12)
    assert beta(9.0, 0.0) == pytest.approx(0.098, rel=1e-12)
    assert beta(9.0, 6.0) == 0.1
    # Per token at 0.5 with gain 0.5 and limit 0.3: 0.6 / 0.5 - 1 = 0.2 gives x 1.1; 5 gives x 1.15; 0.1 gives x 0.85
    own = {"unit": "token", "target": 0.5, "gain": 0.5, "limit": 0.3}
    assert [beta(kl, 99.0, **own) for kl in (0.6, 5.0, 0.1)] == pytest.approx([0.11, 0.115, 0.085], rel=1e-12)
    assert beta(math.nan, math.nan) == 0.1


def test_hand_worked_numbers() -> None:
    hand_worked(module)
