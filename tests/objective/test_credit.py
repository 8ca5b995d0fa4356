from types import ModuleType

import numpy as np
import pytest

from groupwise.errors import ConfigError
from groupwise.objective import credit as module
from groupwise.objective.advantages.batch_zscore import batch_zscore
from groupwise.objective.advantages.group_mean import group_mean
from groupwise.objective.advantages.group_zscore import group_zscore
from groupwise.objective.advantages.length_buckets import length_buckets
from groupwise.objective.credit import process
from groupwise.objective.estimator import Estimator, Evidence

Rows = list[list[float | None]]


def along(rows: Rows, groups: list[int], *, penalties: list[list[float]] | None = None) -> tuple:
    """Evidence of rollouts that earn the given values at their tokens, None for nothing."""
    task = tuple(np.array([0.0 if x is None else x for x in row]) for row in rows)
    off = tuple(np.array(p) for p in penalties) if penalties else tuple(np.zeros(len(r)) for r in rows)
    by_token = tuple(t - o for t, o in zip(task, off, strict=True))
    evidence = Evidence(
        rewards_N=np.array([r.sum() for r in by_token]),
        rewards_NT=by_token,
        task_rewards_N=np.array([r.sum() for r in task]),
        task_rewards_NT=task,
        groups_N=np.array(groups),
        lengths_N=np.array([len(row) for row in rows]),
    )
    return evidence, tuple(np.array([x is not None for x in row], dtype=np.bool_) for row in rows)


def lists(found: tuple[np.ndarray, ...]) -> list[list[float]]:
    return [a.tolist() for a in found]


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    mean = Estimator(group_mean)
    # Values 1, 3 | 5 of one group: mean 3: -2, 0 | 2. To go: -2 + 0 = -2 up to the first, 0 up to the second; then 0.
    found = module.process(mean, *along([[None, 1.0, 3.0, None], [None, 5.0]], [0, 0]))
    assert lists(found) == [[-2.0, -2.0, 0.0, 0.0], [2.0, 2.0]]
    # DeepSeekMath's: (x - 3) / 2 with the sample std 2: -1, 0 | 1
    zscore = Estimator(group_zscore, {"eps": 0.0})
    assert lists(module.process(zscore, *along([[1.0, 3.0], [5.0]], [0, 0]))) == [[-1.0, 0.0], [1.0]]
    # Two groups do not mix: means 2 and 20; the whole batch's would be 11
    found = module.process(mean, *along([[1.0], [3.0], [10.0], [30.0]], [0, 0, 1, 1]))
    assert lists(found) == [[-1.0], [1.0], [-10.0], [10.0]]
    # Three groups: each by itself; one of them is a single rollout, which is compared with nobody, not even itself
    found = module.process(mean, *along([[1.0], [3.0], [10.0, 30.0], [5.0], [7.0]], [0, 0, 1, 2, 2]))
    assert lists(found) == [[-1.0], [1.0], [0.0, 0.0], [-1.0], [1.0]]
    # Penalties go to the value that their token leads up to, those behind the last to it: 1 - 0.1 - 0.2 = 0.7;
    # 3 - 0.4 - 0.8 = 1.8; 5.5 - 0 = 5.5; mean 8 / 3
    found = module.process(
        mean,
        *along([[None, 1.0, 3.0, None], [5.5]], [0, 0], penalties=[[0.1, 0.2, 0.4, 0.8], [0.0]]),
    )
    np.testing.assert_allclose(found[0], [-17 / 6, -17 / 6, -13 / 15, 0.0], rtol=1e-12)
    np.testing.assert_allclose(found[1], [17 / 6], rtol=1e-12)
    # A rollout without trained tokens still counts with its reward: values 1, 3 | 8 (nowhere to put it): mean 4
    evidence, earned = along([[1.0, 3.0], []], [0, 0])
    evidence = module.replace(evidence, rewards_N=np.array([4.0, 8.0]), task_rewards_N=np.array([4.0, 8.0]))
    assert lists(module.process(mean, evidence, earned)) == [[-4.0, -1.0], []]
    with pytest.raises(
        ConfigError, match=r"length_buckets asks for lengths_G, .* set objective\.credit to outcome"
    ):
        module.process(Estimator(length_buckets), *along([[1.0], [3.0]], [0, 0]))


def test_hand_worked_numbers() -> None:
    hand_worked(module)


def test_one_value_at_the_end_is_the_reward_itself() -> None:
    evidence, earned = along([[None, None, 1.0], [None, 2.0], [4.0], [None, 2.0]], [0, 0, 0, 0])
    for function, settings in ((group_zscore, {"eps": 0.0}), (group_mean, {}), (batch_zscore, {"eps": 0.0})):
        estimate = Estimator(function, settings)
        assert lists(process(estimate, evidence, earned)) == lists(estimate(evidence))


def test_equal_values_give_exactly_zero() -> None:
    found = process(Estimator(group_zscore, {"eps": 0.0}), *along([[0.3, None, 0.3], [0.3]], [0, 0]))
    assert lists(found) == [[0.0] * 3, [0.0]]
    # Nor does a KL penalty become an advantage where all values are equal.
    penalised = along([[0.3, 0.3], [0.3]], [0, 0], penalties=[[0.1, 0.0], [0.0]])
    assert lists(process(Estimator(group_zscore), *penalised)) == [[0.0, 0.0], [0.0]]


def test_values_are_normalised_over_the_group_and_never_within_a_rollout() -> None:
    # Two rollouts with the same spread, one everywhere 10 better: within themselves they would look alike.
    found = process(Estimator(group_mean), *along([[0.0, 1.0], [10.0, 11.0]], [0, 0]))
    assert lists(found) == [[-10.0, -4.5], [10.0, 5.5]]


def test_the_order_of_rollouts_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    rows: Rows = [
        [None if rng.random() < 0.5 else float(rng.normal()) for _ in range(n)] for n in (4, 3, 5, 2, 6, 1)
    ]
    for row in rows:
        row[-1] = 1.0
    groups = [0, 0, 0, 1, 1, 1]
    estimate = Estimator(group_zscore)
    found = process(estimate, *along(rows, groups))
    order = [5, 0, 3, 2, 4, 1]
    shuffled = process(estimate, *along([rows[i] for i in order], [groups[i] for i in order]))
    for place, i in enumerate(order):
        np.testing.assert_allclose(shuffled[place], found[i], rtol=1e-12, atol=1e-13)
