"""The KL in the reward: what is taken off, from whom, and that the leash pulls."""

from collections.abc import Callable

import numpy as np
import pytest

from groupwise.config.objective import KLConfig, ObjectiveConfig
from groupwise.health.metric import values
from groupwise.objective.advantages.group_mean import group_mean
from groupwise.objective.advantages.group_zscore import group_zscore
from groupwise.objective.estimator import Estimator
from groupwise.records import Group
from groupwise.training.advantages import advantages, judge
from groupwise.training.logprobs import Logprobs, Penalties, kl_penalties
from groupwise.training.loop import train
from groupwise.training.setup import Run
from tests.training.test_advantages import group


def f32(*numbers: float) -> np.ndarray:
    return np.array(numbers, dtype=np.float32)


KL = {"place": "reward", "estimator": "k1", "beta": 0.5}


def penalised(one: Group, logprobs: Logprobs, *, truncated: str = "keep", **kl: object) -> Penalties:
    objective = ObjectiveConfig.model_validate({"truncated": truncated, "kl": {**KL, **kl}})
    found = kl_penalties([judge(one, objective)], [logprobs], objective.kl, objective.kl.beta)
    assert found is not None
    return found


def lists(arrays: tuple[np.ndarray, ...]) -> list[list[float]]:
    return [a.tolist() for a in arrays]


def test_it_is_beta_times_the_estimate_of_every_trained_token_of_a_rollout_with_a_reward() -> None:
    # k1 = old - reference: 0.5, 1 | untrained, -1 | no reward. Times 0.5.
    one = group([1.0, 2.0, None], untrained={1: [False, True]})
    nan = float("nan")
    logprobs = Logprobs(
        old_GT=(f32(-1.0, -1.0), f32(nan, -2.0), f32(nan, nan)),
        reference_GT=(f32(-1.5, -2.0), f32(nan, -1.0), f32(nan, nan)),
    )
    found = penalised(one, logprobs)
    assert lists(found.of_groups[0]) == [[0.25, 0.5], [0.0, -0.5], [0.0, 0.0]]
    # (0.5 + 1 - 1) / 3 tokens; 0.5 / 2 rollouts
    assert values(found.metrics) == pytest.approx(
        {"kl/token_mean": 0.5 / 3, "kl/rollout_mean": 0.25, "kl/capped_fraction": 0.0}
    )
    found = penalised(one, logprobs, cap_token=0.6)
    assert lists(found.of_groups[0])[0] == pytest.approx([0.25, 0.3])
    assert found.metrics["kl/capped_fraction"].value == pytest.approx(1 / 3)
    # Sum 1.5 held at 0.75: halved
    assert lists(penalised(one, logprobs, cap_rollout=0.75).of_groups[0])[0] == [0.125, 0.25]
    for elsewhere in ({"place": "loss"}, {"beta": 0.0}):
        assert kl_penalties([], [], KLConfig.model_validate({**KL, **elsewhere}), 0.5) is None


def test_it_comes_off_before_normalisation_and_equal_task_rewards_stay_equal() -> None:
    one = group([1.0, 3.0])
    off = [(np.array([0.25, 0.75]), np.array([0.0, 0.0]))]
    objective = ObjectiveConfig.model_validate({"kl": KL})
    # Rewards 1 - 1 = 0 and 3: mean 1.5
    found = advantages([judge(one, objective)], Estimator(group_mean), penalties=off)
    assert lists(found[0]) == [[-1.5, -1.5], [1.5, 1.5]]
    tied = group([2.0, 2.0])
    # Penalties alone would be scaled to +-0.707; in units of reward they are the leash: -0.5 and 0.5.
    assert (
        lists(advantages([judge(tied, objective)], Estimator(group_zscore), penalties=off)[0])
        == [[0.0] * 2] * 2
    )
    found = advantages([judge(tied, objective)], Estimator(group_mean), penalties=off)
    assert lists(found[0]) == [[-0.5, -0.5], [0.5, 0.5]]


def test_by_token_each_penalty_stands_where_it_arose() -> None:
    def as_given(rewards_NT: tuple[np.ndarray, ...]) -> list[np.ndarray]:
        return list(rewards_NT)

    one = group([1.0, 3.0], untrained={1: [True, False]})
    off = [(np.array([0.25, 0.75]), np.array([0.5, 0.0]))]
    found = advantages([judge(one, ObjectiveConfig())], Estimator(as_given), penalties=off)
    assert lists(found[0]) == [[-0.25, 0.25], [2.5, 0.0]]


def test_a_masked_rollout_is_scored_since_its_penalty_counts_in_the_mean() -> None:
    one = group([1.0, 3.0], truncated=(1,))
    in_reward = ObjectiveConfig.model_validate({"truncated": "mask", "kl": KL})
    assert judge(one, in_reward).scored_G.tolist() == [True, True]
    in_loss = ObjectiveConfig.model_validate({"truncated": "mask", "kl": {"beta": 0.5}})
    assert judge(one, in_loss).scored_G.tolist() == [True, False]


def test_the_leash_in_the_reward_holds_a_run_back(tiny_run: Callable[..., Run]) -> None:
    def drift(beta: float) -> float:
        run = tiny_run(
            objective={
                "advantage": "group_mean",
                "kl": {"beta": beta, "place": "reward", "estimator": "k1"},
            },
            training={"steps": 8, "learning_rate": 3e-3},
        )
        result = train(run)
        assert "kl/token_mean" in result.metrics[0]
        assert result.series("kl/token_mean")[0] == pytest.approx(0.0, abs=1e-6)
        return float(np.mean(result.series("kl/rollout_mean")[-4:]))

    assert drift(1.0) < 0.6 * drift(1e-6)
