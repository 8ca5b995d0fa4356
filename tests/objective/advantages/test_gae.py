from types import ModuleType

import numpy as np
import pytest

from groupwise.objective.advantages import gae as module
from groupwise.objective.advantages.gae import gae, value_targets

REWARDS = (np.array([0.0, -1.0, 3.0]), np.array([2.0]))
VALUES = (np.array([1.0, 2.0, 0.5]), np.array([1.5]))


def hand_worked(module: ModuleType) -> None:
    # gamma 0.5, lam 0.5. First rollout, from the end:
    #   d_3 = 3 + 0.5 x 0 - 0.5 = 2.5                       A_3 = 2.5
    #   d_2 = -1 + 0.5 x 0.5 - 2 = -2.75                    A_2 = -2.75 + 0.25 x 2.5 = -2.125
    #   d_1 = 0 + 0.5 x 2 - 1 = 0                           A_1 = 0 + 0.25 x -2.125 = -0.53125
    # Second: d_1 = 2 - 1.5 = 0.5                           A_1 = 0.5
    plain = module.gae(REWARDS, VALUES, gamma=0.5, lam=0.5, whiten=False)
    assert plain[0].tolist() == pytest.approx([-0.53125, -2.125, 2.5], abs=1e-12)
    assert plain[1].tolist() == pytest.approx([0.5], abs=1e-12)
    # Targets: A + V = 0.46875, -0.125, 3; 2.
    targets = module.value_targets(REWARDS, VALUES, gamma=0.5, lam=0.5)
    assert targets[0].tolist() == pytest.approx([0.46875, -0.125, 3.0], abs=1e-12)
    assert targets[1].tolist() == pytest.approx([2.0], abs=1e-12)
    # Whitened over the four: mean (-0.53125 - 2.125 + 2.5 + 0.5) / 4 = 0.0859375; deviations -0.6171875, -2.2109375,
    # 2.4140625, 0.4140625; squares 0.38092, 4.88824, 5.82770, 0.17145 add to 11.26831, / 4 = 2.8170776, root 1.6784152.
    white = module.gae(REWARDS, VALUES, gamma=0.5, lam=0.5)
    assert white[0].tolist() == pytest.approx([-0.367720, -1.317277, 1.438299], abs=2e-6)
    assert white[1].tolist() == pytest.approx([0.246698], abs=2e-6)
    # The 1e-8 under the root: two advantages 0 and 2e-4 have the variance 1e-8, so that they become -+ 1 / sqrt(2).
    small = module.gae((np.array([0.0]), np.array([2e-4])), (np.zeros(1), np.zeros(1)))
    assert [float(a[0]) for a in small] == pytest.approx([-0.70710678, 0.70710678], abs=1e-7)
    # Nothing to whiten: no rollout, and one without a trained token.
    assert module.gae((), ()) == []
    assert [len(a) for a in module.gae((np.zeros(0),), (np.zeros(0),))] == [0]


def test_hand_worked() -> None:
    hand_worked(module)


def reference(rewards: list[float], values: list[float], gamma: float, lam: float) -> list[float]:
    """The double sum as the paper writes it."""
    n = len(rewards)
    d = [rewards[t] + gamma * (values[t + 1] if t + 1 < n else 0.0) - values[t] for t in range(n)]
    return [sum((gamma * lam) ** k * d[t + k] for k in range(n - t)) for t in range(n)]


@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.0])
@pytest.mark.parametrize("lam", [1.0, 0.95, 0.0])
def test_it_is_the_papers_sum(gamma: float, lam: float) -> None:
    rng = np.random.default_rng(1)
    rewards = tuple(rng.normal(size=n) for n in (1, 5, 0, 7))
    values = tuple(rng.normal(size=len(r)) for r in rewards)
    found = gae(rewards, values, gamma=gamma, lam=lam, whiten=False)
    for advantages, r, v in zip(found, rewards, values, strict=True):
        assert advantages.tolist() == pytest.approx(reference(r.tolist(), v.tolist(), gamma, lam), abs=1e-12)


def test_at_both_ends_of_lambda() -> None:
    rewards, values = (np.array([0.0, 0.0, 1.0]),), (np.array([0.2, 0.4, 0.7]),)
    # lam 1: all that is still to come, less the value; lam 0: one token ahead.
    [whole] = gae(rewards, values, lam=1.0, whiten=False)
    assert whole.tolist() == pytest.approx([0.8, 0.6, 0.3])
    [ahead] = gae(rewards, values, lam=0.0, whiten=False)
    assert ahead.tolist() == pytest.approx([0.2, 0.3, 0.3])
    [target] = value_targets(rewards, values, lam=1.0)
    assert target.tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_a_critic_that_knows_all_leaves_nothing_to_learn() -> None:
    rewards, values = (np.array([0.0, 0.0, 1.0]),), (np.ones(3),)
    for whiten in (True, False):
        [found] = gae(rewards, values, whiten=whiten)
        assert found.tolist() == [0.0, 0.0, 0.0]


def test_whitened_advantages_have_mean_zero_and_std_one_and_keep_their_order() -> None:
    rng = np.random.default_rng(2)
    rewards = tuple(rng.normal(size=n) for n in (4, 9, 2))
    values = tuple(rng.normal(size=len(r)) for r in rewards)
    white = np.concatenate(gae(rewards, values))
    plain = np.concatenate(gae(rewards, values, whiten=False))
    assert white.mean() == pytest.approx(0, abs=1e-12)
    assert white.std() == pytest.approx(1, abs=1e-6)
    assert np.argsort(white).tolist() == np.argsort(plain).tolist()
    # The order of rollouts does not matter, nor does the unit of reward once whitened.
    turned = gae(rewards[::-1], values[::-1])[::-1]
    assert np.concatenate(turned).tolist() == pytest.approx(white.tolist(), abs=1e-12)
    scaled = gae(tuple(10 * r for r in rewards), tuple(10 * v for v in values))
    assert np.concatenate(scaled).tolist() == pytest.approx(white.tolist(), abs=1e-6)
