from types import ModuleType

import numpy as np

from groupwise.objective.advantages import token_whitening as module
from groupwise.objective.advantages.token_whitening import token_whitening


def rewards(*rows: list[float]) -> tuple[np.ndarray, ...]:
    return tuple(np.array(row, dtype=np.float64) for row in rows)


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    # Penalties 0.1, 0.2 and reward 1 - 0.3 at the end: returns 0.4, 0.5, 0.7. Beside it reward 0 on one token: 0.
    # Mean 1.6 / 4 = 0.4; deviations 0, 0.1, 0.3, -0.4; squares 0.01 + 0.09 + 0.16 = 0.26; std sqrt(0.065) = 0.254951
    got = module.token_whitening(rewards([-0.1, -0.2, 0.7], [0.0]), eps=0.0)
    np.testing.assert_allclose(got[0], [0.0, 0.392232, 1.176697], atol=1e-6)
    np.testing.assert_allclose(got[1], [-1.568929], atol=1e-6)
    # With a discount of 0.5: 0.7; -0.2 + 0.35 = 0.15; -0.1 + 0.075 = -0.025; and 0. Mean 0.825 / 4 = 0.20625
    # deviations -0.23125, -0.05625, 0.49375, -0.20625; squares 0.053477 + 0.003164 + 0.243789 + 0.042539 = 0.342969;
    # std sqrt(0.085742) = 0.292818; plus eps 1
    got = module.token_whitening(rewards([-0.1, -0.2, 0.7], [0.0]), discount=0.5, eps=1.0)
    np.testing.assert_allclose(got[0], [-0.178873, -0.043510, 0.381918], atol=1e-6)
    np.testing.assert_allclose(got[1], [-0.159535], atol=1e-6)
    got = module.token_whitening(rewards([0.0, 0.3], [0.3], []))
    assert [a.tolist() for a in got] == [[0.0, 0.0], [0.0], []]
    assert module.token_whitening(()) == []


def test_hand_worked_numbers() -> None:
    hand_worked(module)


def test_the_mean_over_tokens_is_zero_and_the_std_one() -> None:
    rng = np.random.default_rng(0)
    batch = tuple(rng.normal(size=n) for n in (5, 1, 9, 0, 3))
    every = np.concatenate(token_whitening(batch))
    assert abs(every.mean()) < 1e-12
    assert abs(every.std() - 1) < 1e-7
