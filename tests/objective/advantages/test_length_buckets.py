from types import ModuleType

import numpy as np
import pytest

from groupwise.objective.advantages import length_buckets as module
from groupwise.objective.advantages.group_mean import group_mean
from groupwise.objective.advantages.length_buckets import length_buckets
from groupwise.objective.estimator import Estimator, Evidence


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    rewards = np.array([1.0, 3.0, 10.0, 20.0, 6.0])
    # Lengths 4 and 7 share a bucket (4 to 7), 8 and 15 too; 16 is alone. Means 2 and 15; the group's mean is 8.
    got = module.length_buckets(rewards, np.array([4, 7, 8, 15, 16]), rewards, of="group_mean")
    assert got.tolist() == [-1.0, 1.0, -5.0, 5.0, -2.0]
    # Factor 10: 1 to 9, 10 to 99, 100 and more: means of the first three 14/3, of the others 13
    got = module.length_buckets(rewards, np.array([1, 8, 9, 10, 99]), rewards, of="group_mean", factor=10.0)
    np.testing.assert_allclose(got, [-11 / 3, -5 / 3, 16 / 3, 7.0, -7.0], rtol=1e-12)
    # A whole power begins its bucket, though log(1000) / log(10) is 2.9999999999999996; no token at all counts as one
    got = module.length_buckets(
        rewards[:4], np.array([999, 1000, 0, 1]), rewards[:4], of="group_mean", factor=10.0
    )
    assert got.tolist() == [1.0 - 8.5, 3.0 - 8.5, -5.0, 5.0]
    # By default the z-score, with its settings where `of` says so: deviations -1, 1, population std 1, eps 1
    own = {"name": "group_zscore", "std": "population", "eps": 1.0}
    got = module.length_buckets(rewards[:2], np.array([4, 7]), rewards[:2], of=own)
    np.testing.assert_allclose(got, [-0.5, 0.5], rtol=1e-12)
    np.testing.assert_allclose(
        module.length_buckets(rewards[:2], np.array([4, 7]), rewards[:2]), [-0.707057, 0.707057], atol=1e-6
    )
    assert (
        module.length_buckets(np.array([0.3] * 4), np.array([1, 2, 3, 4]), np.array([0.3] * 4)).tolist()
        == [0.0] * 4
    )
    # A penalty in the rewards: the tasks of lengths 4 and 7 tie, so that only the penalty parts them, which is 0 for a
    # z-score and itself (mean 0.8) for group_mean; those of 8 and 15 do not (0.2 and 0.6, mean 0.4)
    task, off = np.array([1.0, 1.0, 0.5, 1.0]), np.array([0.1, 0.3, 0.3, 0.4])
    exact = {"name": "group_zscore", "std": "population", "eps": 0.0}
    got = module.length_buckets(task - off, np.array([4, 7, 8, 15]), task, of=exact)
    np.testing.assert_allclose(got, [0.0, 0.0, -1.0, 1.0], rtol=1e-12)
    got = module.length_buckets(task - off, np.array([4, 7, 8, 15]), task, of="group_mean")
    np.testing.assert_allclose(got, [0.1, -0.1, -0.2, 0.2], rtol=1e-12)
    for wrong in ("batch_zscore", "length_buckets", "token_whitening"):
        with pytest.raises(ValueError, match="asks for more than the rewards of one group"):
            module.length_buckets(rewards, np.arange(5), rewards, of=wrong)
    with pytest.raises(ValueError, match=r"of: no advantages entry is called 'group_zscor'"):
        module.length_buckets(rewards, np.arange(5), rewards, of="group_zscor")
    with pytest.raises(ValueError, match=r"of: group_mean has no setting 'eps'"):
        module.length_buckets(rewards, np.arange(5), rewards, of={"name": "group_mean", "eps": 1.0})


def test_hand_worked_numbers() -> None:
    hand_worked(module)


def test_equal_rewards_within_a_bucket_give_zero() -> None:
    got = length_buckets(
        np.array([1.0, 1.0, 0.0, 0.0]), np.array([2, 3, 40, 50]), np.array([1.0, 1.0, 0.0, 0.0])
    )
    assert got.tolist() == [0.0] * 4


def test_one_bucket_for_all_is_the_estimator_itself() -> None:
    rewards = np.random.default_rng(0).normal(size=9)
    lengths = np.random.default_rng(1).integers(64, 128, 9)
    assert length_buckets(rewards, lengths, rewards, of="group_mean").tolist() == group_mean(rewards).tolist()


def test_a_kl_in_the_reward_is_no_advantage_in_a_bucket_whose_tasks_tie() -> None:
    """Short answers are both wrong and long ones both right: nothing but the penalty differs within a bucket."""
    task_N = np.array([0.0, 0.0, 1.0, 1.0])
    rewards_N = task_N - np.array([1e-3, 2e-3, 1e-3, 3e-3])
    lengths_N = np.array([10, 11, 100, 101])
    evidence = Evidence(
        rewards_N=rewards_N,
        rewards_NT=tuple(np.full(n, r / n) for r, n in zip(rewards_N, lengths_N, strict=True)),
        task_rewards_N=task_N,
        task_rewards_NT=tuple(np.full(n, r / n) for r, n in zip(task_N, lengths_N, strict=True)),
        groups_N=np.zeros(4, dtype=np.int64),
        lengths_N=lengths_N,
    )
    for of in ("group_zscore", "rank", "sign"):
        found = Estimator(length_buckets, {"of": of})(evidence)
        assert [float(np.abs(advantages_T).max()) for advantages_T in found] == [0.0] * 4, of
