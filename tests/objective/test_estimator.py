import dataclasses
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from groupwise.errors import ConfigError
from groupwise.objective import estimator as module
from groupwise.objective.advantages.gae import gae
from groupwise.objective.advantages.group_mean import group_mean
from groupwise.objective.advantages.group_zscore import group_zscore
from groupwise.objective.estimator import Estimator, Evidence


def evidence(module: ModuleType = module, *, penalty: float = 0.0, **more: Any) -> Evidence:
    """Two groups: rewards 1 and 3 with 2 and 1 tokens; 5, 5 with 0 and 1. `penalty` is taken off the last."""
    task = np.array([1.0, 3.0, 5.0, 5.0])
    rewards = task - penalty * np.array([0.0, 0.0, 0.0, 1.0])
    by_token = (np.array([0.0, 1.0]), np.array([3.0]), np.zeros(0), np.array([5.0 - penalty]))
    return module.Evidence(
        rewards_N=rewards,
        rewards_NT=by_token,
        task_rewards_N=task,
        task_rewards_NT=(np.array([0.0, 1.0]), np.array([3.0]), np.zeros(0), np.array([5.0])),
        groups_N=np.array([0, 0, 1, 1]),
        lengths_N=np.array([2, 1, 0, 1]),
        **more,
    )


def lists(found: tuple[np.ndarray, ...]) -> list[list[float]]:
    return [a.tolist() for a in found]


def per_batch(rewards_N: np.ndarray, groups_N: np.ndarray) -> np.ndarray:
    return rewards_N + 100 * groups_N


def by_token(rewards_NT: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    return [rewards_T * 2 for rewards_T in rewards_NT]


def greedy(rewards_G: np.ndarray, greedy_rewards_G: np.ndarray) -> np.ndarray:
    return rewards_G - greedy_rewards_G


def against_values(rewards_NT: tuple[np.ndarray, ...], values_NT: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    return [r - v for r, v in zip(rewards_NT, values_NT, strict=True)]


def of_lengths(rewards_G: np.ndarray, lengths_G: np.ndarray) -> np.ndarray:
    return rewards_G * lengths_G


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    estimate = module.Estimator
    # Means 2 and 5: one number per rollout becomes one per token
    assert lists(estimate(group_mean)(evidence(module))) == [[-1.0, -1.0], [1.0], [], [0.0]]
    assert lists(estimate(of_lengths)(evidence(module))) == [[2.0, 2.0], [3.0], [], [5.0]]
    assert lists(estimate(per_batch)(evidence(module))) == [[1.0, 1.0], [3.0], [], [105.0]]
    assert lists(estimate(by_token)(evidence(module))) == [[0.0, 2.0], [6.0], [], [10.0]]
    with_greedy = evidence(module, greedy_rewards_N=np.array([2.0, 2.0, 9.0, 9.0]))
    assert lists(estimate(greedy)(with_greedy)) == [[-1.0, -1.0], [1.0], [], [-4.0]]
    # Three groups of one: each is its own mean
    alone = dataclasses.replace(evidence(module), groups_N=np.array([0, 1, 2, 2]))
    assert lists(estimate(group_mean)(alone)) == [[0.0, 0.0], [0.0], [], [0.0]]
    # A penalty of 0.5 where task rewards are equal: 4.5 less the mean 4.75 is -0.25, but a z-score is exactly 0.
    assert lists(estimate(group_mean)(evidence(module, penalty=0.5)))[3] == [-0.25]
    assert lists(estimate(group_zscore)(evidence(module, penalty=0.5)))[3] == [0.0]
    # One that sees the batch: there the task rewards differ, so it is called.
    assert lists(estimate(per_batch)(evidence(module, penalty=0.5)))[3] == [104.5]
    flags = ("by_group", "by_token", "compares")
    for function, expected in (
        (group_mean, (True, False, True)),
        (per_batch, (False, False, True)),
        (by_token, (False, True, False)),
        (greedy, (True, False, False)),
    ):
        assert tuple(getattr(estimate(function), flag) for flag in flags) == expected
    assert estimate(greedy).needs == {"greedy_rewards"}
    assert estimate(of_lengths).needs == frozenset()
    # What a critic learns: gae's targets with gamma 0.5 and lam 0 are r_t + 0.5 V_(t+1), whitened or not:
    # 0 + 0.5 x 4 = 2 and 1; 3; none; 5. Without a function beside the estimator, the rewards to come: of 2 and 1 these
    # are 3 and 1.
    values = (np.array([2.0, 4.0]), np.array([1.0]), np.zeros(0), np.array([9.0]))
    with_values = evidence(module, values_NT=values)
    of_gae = estimate(gae, {"gamma": 0.5, "lam": 0.0, "whiten": True})
    assert lists(of_gae.targets(with_values)) == [[2.0, 1.0], [3.0], [], [5.0]]
    earlier = dataclasses.replace(with_values, rewards_NT=(np.array([2.0, 1.0]), *with_values.rewards_NT[1:]))
    assert lists(estimate(against_values).targets(earlier)) == [[3.0, 1.0], [3.0], [], [5.0]]
    assert of_gae.needs == {"values"}
    for wrong in ([1.0], [1.0, np.nan], [np.zeros(2), np.zeros(2)], np.zeros((2, 1))):
        with pytest.raises(
            ValueError,
            match=r"the advantage wrongly \(test_estimator.py, line \d+\) gave .* \(rewards \[1\. 3\.\]\)",
        ):
            estimate(returning(wrong))(evidence(module))
    with pytest.raises(
        ValueError, match=r"the advantage fails \(.*\) failed: IndexError: index 99.*\(rewards \[1\. 3\.\]\)"
    ):
        estimate(fails)(evidence(module))


def fails(rewards_G: np.ndarray) -> Any:
    return rewards_G[99]


def returning(value: Any) -> Any:
    def wrongly(rewards_G: np.ndarray) -> Any:
        return value

    return wrongly


def test_hand_worked_numbers() -> None:
    hand_worked(module)


def test_groups_that_are_not_side_by_side_stay_groups() -> None:
    mixed = Evidence(
        rewards_N=np.array([1.0, 10.0, 3.0, 20.0]),
        rewards_NT=(),
        task_rewards_N=np.array([1.0, 10.0, 3.0, 20.0]),
        task_rewards_NT=(),
        groups_N=np.array([0, 1, 0, 1]),
        lengths_N=np.array([1, 1, 1, 1]),
    )
    assert lists(Estimator(group_mean)(mixed)) == [[-1.0], [-5.0], [1.0], [5.0]]


def test_settings_are_bound() -> None:
    # Deviations -1, 1; population std 1; 1 / (1 + 1)
    found = Estimator(group_zscore, {"std": "population", "eps": 1.0})(evidence())
    assert lists(found)[:2] == [[-0.5, -0.5], [0.5]]


def test_a_function_of_yours_may_call_its_rewards_anything() -> None:
    def mine(x: np.ndarray) -> np.ndarray:
        return x

    assert lists(Estimator(mine)(evidence())) == [[1.0, 1.0], [3.0], [], [5.0]]


def test_what_cannot_be_asked_for_is_named() -> None:
    def unknown(rewards_G: np.ndarray, colours_G: np.ndarray) -> np.ndarray:
        return rewards_G

    def mixed(rewards_G: np.ndarray, groups_N: np.ndarray) -> np.ndarray:
        return rewards_G

    def nothing(*, eps: float = 0.0) -> None: ...

    with pytest.raises(ConfigError, match="asks for 'colours_G'; there are rewards_G, rewards_N"):
        Estimator(unknown)
    with pytest.raises(
        ConfigError, match="asks for 'rewards_G' and 'groups_N'; all arguments are of one group"
    ):
        Estimator(mixed)

    def turned(lengths_G: np.ndarray, rewards_G: np.ndarray) -> np.ndarray:
        return rewards_G

    with pytest.raises(ConfigError, match=r"turned \(.*\) asks for lengths_G first; rewards come first"):
        Estimator(turned)
    with pytest.raises(ConfigError, match="takes no rewards"):
        Estimator(nothing)
    with pytest.raises(ConfigError, match="asks for greedy_rewards, which this run does not compute"):
        Estimator(greedy)(evidence())


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (None, "returned nothing for 2 rollouts"),
        (0.5, "gave the one number 0.5 for 2 rollouts"),
        (["a", "b"], "gave a list that is not all numbers"),
        ({"a": 1}, "gave a dict that is not all numbers"),
        ([None, 1.0], r"gave None for a rollout|gave a list that is not all numbers|gave nan for a rollout"),
    ],
)
def test_what_is_no_number_per_rollout_is_told_with_the_place(returned: Any, said: str) -> None:
    with pytest.raises(ValueError, match=rf"the advantage wrongly \(test_estimator.py, line \d+\) ({said})"):
        module.Estimator(returning(returned))(evidence(module))


def test_a_setting_without_its_star_is_told_so() -> None:
    def odd(rewards: np.ndarray, eps: float = 1.0) -> Any:
        return rewards

    with pytest.raises(
        ConfigError, match=r"the advantage odd \(.*\): settings, such as eps, stand behind a \*"
    ):
        module.Estimator(odd)
