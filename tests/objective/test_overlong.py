from types import ModuleType

import pytest

from groupwise.objective import overlong as module


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""

    def off(tokens: int, **settings: float) -> float:
        return module.soft_overlong(tokens, **{"limit": 20, "buffer": 8, "penalty": 1.0, **settings})

    # Nothing up to 12; then one eighth per token: (12 - 14) / 8 = -0.25; all of it at 20
    assert [off(n) for n in (0, 12, 13, 14, 20)] == [0.0, 0.0, -0.125, -0.25, -1.0]
    assert off(16, penalty=3.0) == pytest.approx(-1.5, rel=1e-12)  # 3 x -4 / 8
    assert off(19, buffer=1) == 0.0
    assert off(20, buffer=1) == -1.0
    # The paper's: 16,384 free, 4,096 behind them; halfway at 18,432
    assert module.soft_overlong(18432, limit=20480, buffer=4096, penalty=1.0) == -0.5


def test_hand_worked_numbers() -> None:
    hand_worked(module)
