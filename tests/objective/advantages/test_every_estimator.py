"""What holds for every estimator that rewards alone are enough for, and will for the next one."""

import numpy as np
import pytest

from groupwise import registry
from groupwise.config import load
from groupwise.errors import ConfigError
from groupwise.objective.estimator import Estimator, Evidence

PACKAGE = "groupwise.objective.advantages"
EVERY = [name for name in registry.names(PACKAGE) if not Estimator(registry.find(PACKAGE, name)).needs]
COMPARING = [name for name in registry.names(PACKAGE) if Estimator(registry.find(PACKAGE, name)).compares]


def evidence(groups: list[list[float]], lengths: list[list[int]] | None = None) -> Evidence:
    """Groups of rewards; rollouts of 3, 4, 5, ... trained tokens."""
    rewards = np.array([r for group in groups for r in group], dtype=np.float64)
    long = np.array([n for group in lengths for n in group]) if lengths else np.arange(3, 3 + len(rewards))
    by_token = tuple(np.array([0.0] * (n - 1) + [r]) for r, n in zip(rewards, long, strict=True))
    return Evidence(
        rewards_N=rewards,
        rewards_NT=by_token,
        task_rewards_N=rewards,
        task_rewards_NT=by_token,
        groups_N=np.repeat(np.arange(len(groups)), [len(group) for group in groups]),
        lengths_N=long,
    )


def estimated(name: str, groups: list[list[float]], **more: list[list[int]]) -> list[list[float]]:
    return [a.tolist() for a in Estimator(registry.find(PACKAGE, name))(evidence(groups, **more))]


def test_there_are_many() -> None:
    assert len(EVERY) >= 8
    assert {"group_zscore", "leave_one_out", "batch_zscore"} <= set(COMPARING)
    assert "token_whitening" not in COMPARING


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("size", [2, 7, 8, 16])
@pytest.mark.parametrize("reward", [0.0, 0.1, 0.3, 0.7, 1 / 3, 0.95, -7.7, 1e9])
def test_equal_rewards_give_exactly_zero(name: str, size: int, reward: float) -> None:
    # Case a06; and so do rewards that differ in the last bit of float32 alone.
    noisy = (np.full(size, reward, dtype=np.float32) * (1 + 1.2e-7 * (np.arange(size) % 2))).tolist()
    for rewards in ([reward] * size, noisy):
        found = estimated(name, [rewards, rewards])
        assert all(a == 0.0 for row in found for a in row)
        assert [len(row) for row in found] == list(range(3, 3 + 2 * size))


@pytest.mark.parametrize("name", EVERY)
def test_one_rollout_alone_is_finite_and_no_rollout_is_nothing(name: str) -> None:
    # Case a05, at evaluation: size 1 gives 0 and never NaN.
    assert estimated(name, [[3.0]]) == [[0.0] * 3]
    assert estimated(name, []) == []


@pytest.mark.parametrize("name", COMPARING)
def test_a_group_of_one_is_refused_in_training(name: str) -> None:
    # Case a05: before any model is loaded.
    with pytest.raises(ConfigError, match=rf"group_size is 1, but the advantage {name} compares"):
        load({"objective": {"advantage": name}, "rollout": {"group_size": 1}})


@pytest.mark.parametrize("name", EVERY)
def test_the_order_within_and_of_groups_does_not_matter(name: str) -> None:
    rng = np.random.default_rng(3)
    groups = [rng.normal(size=5).round(1).tolist() for _ in range(3)]
    lengths = [[1, 2, 4, 9, 3], [5, 6, 2, 2, 8], [30, 1, 7, 7, 3]]
    found = estimated(name, groups, lengths=lengths)
    by_group = [found[0:5], found[5:10], found[10:15]]
    outer, inner = [2, 0, 1], [4, 1, 0, 3, 2]
    turned = estimated(
        name,
        [[groups[g][i] for i in inner] for g in outer],
        lengths=[[lengths[g][i] for i in inner] for g in outer],
    )
    for place, (g, i) in enumerate((g, i) for g in outer for i in inner):
        np.testing.assert_allclose(turned[place], by_group[g][i], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [n for n in EVERY if Estimator(registry.find(PACKAGE, n)).by_group])
def test_another_group_changes_nothing(name: str) -> None:
    alone = estimated(name, [[1.0, 2.0, 4.0, 2.0]])
    beside = estimated(name, [[1.0, 2.0, 4.0, 2.0], [100.0, -100.0]])
    assert beside[:4] == alone


@pytest.mark.parametrize("name", EVERY)
def test_a_better_reward_never_gets_a_lower_advantage(name: str) -> None:
    lengths = [[5, 5, 5, 5, 5]]
    found = estimated(name, [[-1.0, 0.0, 0.5, 0.5, 3.0]], lengths=lengths)
    last = [row[-1] for row in found]
    assert last == sorted(last)
    assert last[0] < last[-1]
    assert last[2] == last[3]


@pytest.mark.parametrize("name", EVERY)
def test_the_evidence_is_left_as_it_is(name: str) -> None:
    given = evidence([[1.0, 2.0, 4.0], [0.5, 0.5, 9.0]])
    before = [given.rewards_N.copy(), *(a.copy() for a in given.rewards_NT), given.lengths_N.copy()]
    Estimator(registry.find(PACKAGE, name))(given)
    after = [given.rewards_N, *given.rewards_NT, given.lengths_N]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
