import numpy as np
import pytest

from groupwise.config.objective import ObjectiveConfig
from groupwise.errors import TrainingError
from groupwise.objective.advantages.group_mean import group_mean
from groupwise.records import Group, Prompt, Rollout, StopReason, Verdict
from groupwise.training.advantages import judge


def group(rewards: list[float | None], truncated: tuple[int, ...] = ()) -> Group:
    prompt = Prompt(id="a:0", source="a", messages=None, text="x", token_ids=np.array([1], dtype=np.int32))
    rollouts = tuple(
        Rollout(
            prompt_id="a:0",
            group_index=i,
            token_ids_T=np.array([5, 6], dtype=np.int32),
            trainable_T=np.ones(2, dtype=np.bool_),
            sampler_logprobs_T=np.zeros(2, dtype=np.float32),
            kept_mass_T=None,
            entropy_T=None,
            stop_reason=StopReason.LENGTH if i in truncated else StopReason.STOP,
            policy_version=0,
            text="",
        )
        for i in range(len(rewards))
    )
    verdicts = tuple(Verdict(reward=r, parts={}, failure=None if r is not None else "gone") for r in rewards)
    return Group(prompt=prompt, rollouts_G=rollouts, verdicts_G=verdicts)


def test_an_absent_reward_is_left_out_of_the_mean_and_the_loss() -> None:
    # mean of 1 and 3 is 2; the rollout without a reward must not count as 0 (which would give a mean of 4/3).
    judged = judge(group([1.0, None, 3.0]), group_mean, ObjectiveConfig())
    assert judged.advantages_G.tolist() == [-1.0, 0.0, 1.0]
    assert judged.in_loss_G.tolist() == [True, False, True]
    assert not judged.zero_spread


def test_a_masked_truncated_rollout_still_counts_in_the_mean() -> None:
    # mean of 0, 1, 5 is 2.
    judged = judge(group([0.0, 1.0, 5.0], truncated=(2,)), group_mean, ObjectiveConfig(truncated="mask"))
    assert judged.advantages_G.tolist() == [-2.0, -1.0, 3.0]
    assert judged.in_loss_G.tolist() == [True, True, False]
    kept = judge(group([0.0, 1.0, 5.0], truncated=(2,)), group_mean, ObjectiveConfig(truncated="keep"))
    assert kept.in_loss_G.all()


def test_zero_spread_is_kept_or_dropped_by_choice() -> None:
    kept = judge(group([0.3, 0.3, 0.3]), group_mean, ObjectiveConfig(zero_spread="keep"))
    dropped = judge(group([0.3, 0.3, 0.3]), group_mean, ObjectiveConfig(zero_spread="drop"))
    assert kept.zero_spread
    assert dropped.zero_spread
    assert kept.advantages_G.tolist() == dropped.advantages_G.tolist() == [0.0, 0.0, 0.0]
    assert kept.in_loss_G.all()
    assert not dropped.in_loss_G.any()


def test_no_reward_at_all() -> None:
    judged = judge(group([None, None]), group_mean, ObjectiveConfig())
    assert judged.advantages_G.tolist() == [0.0, 0.0]
    assert not judged.in_loss_G.any()


@pytest.mark.parametrize("wrong", [np.array([np.nan, 1.0]), np.array([1.0])])
def test_a_wrong_estimator_is_named(wrong: np.ndarray) -> None:
    with pytest.raises(TrainingError, match="one finite number per reward"):
        judge(group([1.0, 2.0]), lambda rewards: wrong, ObjectiveConfig())
