from types import ModuleType

import numpy as np

from groupwise.objective.advantages import batch_zscore as module
from groupwise.objective.advantages.batch_zscore import batch_zscore


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    # Case a07: [0, 1] and [0, 10]: deviations -+0.5, -+5. All four: mean 2.75, squares 7.5625 + 3.0625 + 7.5625 +
    # 52.5625 = 70.75; sample std sqrt(70.75 / 3) = 4.856267: -+0.102960, -+1.029598
    rewards, groups = np.array([0.0, 1.0, 0.0, 10.0]), np.array([0, 0, 1, 1])
    np.testing.assert_allclose(
        module.batch_zscore(rewards, groups, eps=0.0), [-0.102960, 0.102960, -1.029598, 1.029598], atol=1e-6
    )
    # population: sqrt(70.75 / 4) = 4.205651: -+0.118888, -+1.188877
    np.testing.assert_allclose(
        module.batch_zscore(rewards, groups, std="population", eps=0.0),
        [-0.118888, 0.118888, -1.188877, 1.188877],
        atol=1e-6,
    )
    # of the deviations: squares 0.25 + 0.25 + 25 + 25 = 50.5; sqrt(50.5 / 3) = 4.102845: -+0.121867, -+1.218666
    np.testing.assert_allclose(
        module.batch_zscore(rewards, groups, spread_of="deviations", eps=0.0),
        [-0.121867, 0.121867, -1.218666, 1.218666],
        atol=1e-6,
    )
    # eps is added: 0.5 / (4.856267 + 1) = 0.085379; by default 1e-4
    np.testing.assert_allclose(module.batch_zscore(rewards, groups, eps=1.0)[1], 0.085379, atol=1e-6)
    np.testing.assert_allclose(module.batch_zscore(rewards, groups)[3], 5 / 4.856367, atol=1e-6)
    # Groups that are not side by side, and one of equal rewards, which counts in the std alone:
    # rewards 0, 0.3, 2, 0.3: mean 0.65; squares 0.4225 + 0.1225 + 1.8225 + 0.1225 = 2.49; sqrt(0.83) = 0.911043
    np.testing.assert_allclose(
        module.batch_zscore(np.array([0.0, 0.3, 2.0, 0.3]), np.array([0, 1, 0, 1]), eps=0.0),
        [-1.097643, 0.0, 1.097643, 0.0],
        atol=1e-6,
    )
    # Three groups, one of them a single rollout: deviations -1, 1, -2, 2, 0. Mean 6.2; squares 38.44 + 17.64 + 14.44 +
    # 60.84 + 1.44 = 132.8; population std sqrt(26.56) = 5.153639
    np.testing.assert_allclose(
        module.batch_zscore(
            np.array([0.0, 2.0, 10.0, 14.0, 5.0]), np.array([0, 0, 1, 1, 2]), std="population", eps=0.0
        ),
        [-0.194038, 0.194038, -0.388075, 0.388075, 0.0],
        atol=1e-6,
    )


def test_hand_worked_numbers() -> None:
    hand_worked(module)


def test_equal_rewards_in_every_group_give_exactly_zero() -> None:
    rewards, groups = np.array([0.3] * 4 + [5.0] * 4), np.repeat([0, 1], 4)
    for of in ("rewards", "deviations"):
        assert batch_zscore(rewards, groups, spread_of=of, eps=0.0).tolist() == [0.0] * 8
    assert batch_zscore(np.array([1.0, 2.0]), np.array([0, 1]), eps=0.0).tolist() == [
        0.0,
        0.0,
    ]  # groups of one
