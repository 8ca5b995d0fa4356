import math
from types import ModuleType

import pytest

from groupwise.objective.kl_controllers import interval as module


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""

    def beta(kl_token: float, kl_rollout: float, at: float = 0.1, **settings: object) -> float:
        return module.interval(at, 0.04, 3, kl_token, kl_rollout, **settings)

    # By default 1 to 10 nats per rollout and a factor of 1.5: 0.15 above, 0.0666667 below, 0.1 between and on the ends
    assert beta(0.0, 10.5) == pytest.approx(0.15, rel=1e-12)
    assert beta(0.0, 0.5) == pytest.approx(0.1 / 1.5, rel=1e-12)
    assert [beta(9.0, kl) for kl in (1.0, 5.0, 10.0)] == [0.1, 0.1, 0.1]
    # Per token, in an interval and with a factor of its own; the KL per rollout does not matter
    per_token = {"unit": "token", "low": 0.01, "high": 0.05, "factor": 2.0}
    assert [beta(kl, 1e6, **per_token) for kl in (0.06, 0.03, 0.001)] == [0.2, 0.1, 0.05]
    # Held within [least, most]
    assert beta(0.0, 99.0, at=0.9) == 1.0
    assert beta(0.0, 0.0, at=1.2e-4) == 1e-4
    assert beta(0.0, 99.0, most=0.12) == 0.12
    assert beta(0.0, 0.0, least=0.09) == 0.09
    assert beta(math.nan, math.nan) == 0.1
    for wrong in ({"low": 5.0, "high": 5.0}, {"low": 5.0, "high": 4.0}, {"least": 0.5, "most": 0.4}):
        with pytest.raises(ValueError, match=r"low below high|room between"):
            beta(1.0, 1.0, **wrong)
    assert beta(0.0, 99.0, least=0.12, most=0.12) == 0.12


def test_hand_worked_numbers() -> None:
    hand_worked(module)


def test_it_finds_its_way_into_the_interval() -> None:
    # A policy whose KL is 1 / beta nats per rollout: beta must come to lie in [0.1, 1].
    for start in (1e-4, 0.02, 1.0):
        beta = start
        for step in range(30):
            beta = module.interval(beta, start, step, math.nan, 1 / beta)
        assert 0.1 <= beta <= 1.0
