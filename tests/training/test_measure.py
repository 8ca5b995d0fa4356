"""Metrics of a batch against numbers worked out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from groupwise.health.metric import values
from groupwise.records import Group, Prompt, Rollout, StopReason, TrainingGroup, Verdict
from groupwise.records.nouns import NONE_APPLIES
from groupwise.training.measure import measure, of_correction
from tests.training.test_batch import row


def rollout(ids: list[int], index: int, *, truncated: bool = False) -> Rollout:
    n = len(ids)
    return Rollout(
        prompt_id="a:0",
        group_index=index,
        token_ids_T=np.array(ids, dtype=np.int32),
        trainable_T=np.ones(n, dtype=np.bool_),
        sampler_logprobs_T=np.zeros(n, dtype=np.float32),
        kept_mass_T=np.full(n, 0.5, dtype=np.float32),
        entropy_T=np.full(n, float(n), dtype=np.float32),
        stop_reason=StopReason.LENGTH if truncated else StopReason.STOP,
        policy_version=0,
        text="",
    )


def judged(
    ids: list[list[int]], rewards: list[float | None], advantages: list[float], *, flat: bool = False
) -> TrainingGroup:
    failures = [None if r is not None else NONE_APPLIES for r in rewards]
    prompt = Prompt(id="a:0", source="a", messages=None, text="x", token_ids=np.array([1], dtype=np.int32))
    group = Group(
        prompt=prompt,
        rollouts_G=tuple(rollout(tokens, i, truncated=len(tokens) == 3) for i, tokens in enumerate(ids)),
        verdicts_G=tuple(
            Verdict(reward=r, parts={"p": None if r is None else 2 * r}, failure=f)
            for r, f in zip(rewards, failures, strict=True)
        ),
    )
    present = np.array([r is not None for r in rewards])
    return TrainingGroup(
        group=group,
        # Spread about their mean, which is what counts; a rollout of one token has the mean itself.
        advantages_GT=tuple(
            a + np.linspace(-1.0, 1.0, len(r.token_ids_T)) * (len(r.token_ids_T) > 1)
            for a, r in zip(advantages, group.rollouts_G, strict=True)
        ),
        in_loss_G=present,
        zero_spread=flat,
        old_logprobs_GT=tuple(r.sampler_logprobs_T for r in group.rollouts_G),
        reference_logprobs_GT=None,
    )


def test_what_importance_weights_leave_by_hand() -> None:
    """Weights 1, 0.5 and 2, and one that is not trained: (3.5)^2 / (3 x (1 + 0.25 + 4)) = 12.25 / 15.75 = 7/9."""
    plain = row(0, 1)
    weighted = [
        replace(plain, correction_T=np.array([1.0], dtype=np.float32)),
        replace(row(0, 3, trainable=[True, False, True]), correction_T=np.array([0.5, 9.0, 2.0], np.float32)),
    ]
    assert of_correction(weighted)["sampler/effective_fraction"].value == pytest.approx(7 / 9)
    alike = [replace(plain, correction_T=np.array([0.3], dtype=np.float32))] * 4
    assert of_correction(alike)["sampler/effective_fraction"].value == pytest.approx(1)
    nothing = [replace(plain, correction_T=np.array([0.0], dtype=np.float32))]
    assert of_correction(nothing)["sampler/effective_fraction"].value == 0
    assert of_correction([plain]) == of_correction([]) == {}


def test_a_batch_by_hand() -> None:
    batch = [
        judged([[5, 6, 7], [5, 6]], [1.0, 0.0], [1.0, -1.0]),
        judged([[8], [8]], [0.5, None], [0.0, 0.0], flat=True),
    ]
    found = values(measure(batch))
    # rewards 1, 0, 0.5: mean 0.5, population variance (0.25 + 0.25 + 0) / 3
    assert found["reward/mean"] == pytest.approx(0.5)
    assert found["reward/std"] == pytest.approx(math.sqrt(0.5 / 3))
    assert (found["reward/min"], found["reward/max"]) == (0.0, 1.0)
    # spreads within the groups: 0.5 for 1 and 0, 0 for the one that is left
    assert found["reward/group_std_mean"] == pytest.approx(0.25)
    assert found["reward/zero_spread_fraction"] == 0.5
    assert found["reward/absent_fraction"] == 0.25
    assert found["reward/failed_count"] == 0, "a reward may say that it does not apply"
    assert found["reward/part/p/mean"] == pytest.approx(1.0)  # 2, 0, 1
    # advantages in the loss: 1, -1, 0
    assert found["advantage/mean"] == pytest.approx(0.0)
    assert found["advantage/std"] == pytest.approx(math.sqrt(2 / 3))
    # lengths 3, 2, 1, 1, the first cut off
    assert found["length/mean"] == pytest.approx(1.75)
    assert (found["length/min"], found["length/max"], found["tokens/generated"]) == (1, 3, 7)
    assert found["length/truncated_fraction"] == 0.25
    # entropy per token: 3 x 3, 2 x 2, 1, 1 over 7 tokens
    assert found["policy/entropy"] == pytest.approx((9 + 4 + 1 + 1) / 7)
    assert found["sampler/kept_mass_mean"] == pytest.approx(0.5)
    # tokens 5 6 7 5 6 8 8: 4 different of 7; pairs 56 67 56: 2 different of 3
    assert found["diversity/distinct_1"] == pytest.approx(4 / 7)
    assert found["diversity/distinct_2"] == pytest.approx(2 / 3)
    # different responses: 2 of 2, and 1 of 2
    assert found["diversity/group_distinct_fraction"] == pytest.approx(0.75)


def test_two_rewards_that_hardly_differ_are_a_tiny_spread() -> None:
    # A hundredth of 1 is 0.01; 1e-6 of it is equal.
    ids, zeros = [[5], [6], [7]], [0.0, 0.0, 0.0]
    groups = [
        judged(ids, [1.0, 1.0, 0.991], zeros),
        judged(ids, [1.0, 1.0, 0.989], zeros),
        judged(ids, [1.0, 0.995, 0.991], zeros),
        judged(ids, [1.0, 1.0, 1.0 - 1e-7], zeros),
        judged(ids, [-1.0, -1.0, -0.991], zeros),
    ]
    assert [values(measure([g]))["reward/tiny_spread_fraction"] for g in groups] == [1.0, 0.0, 0.0, 0.0, 1.0]


def test_a_failed_reward_is_counted() -> None:
    batch = judged([[5], [6]], [1.0, None], [0.0, 0.0])
    failed = Verdict(reward=None, parts={"p": None}, failure="p: ValueError: gone")
    group = Group(
        prompt=batch.group.prompt,
        rollouts_G=batch.group.rollouts_G,
        verdicts_G=(batch.group.verdicts_G[0], failed),
    )
    assert values(measure([replace(batch, group=group)]))["reward/failed_count"] == 1


def test_the_metrics_of_two_parts_add_up_to_those_of_the_whole() -> None:
    from groupwise.health.metric import combine

    first = judged([[5, 6, 7], [5, 6]], [1.0, 0.0], [1.0, -1.0])
    second = judged([[8], [9]], [0.5, 0.25], [0.5, -0.5])
    whole = values(measure([first, second]))
    parts = values(combine([measure([first]), measure([second])]))
    for name in whole:
        if not name.startswith("diversity/distinct"):  # different n-grams of two parts are not disjoint
            assert parts[name] == pytest.approx(whole[name]), name


def test_right_and_wrong_by_hand() -> None:
    batch = [
        judged([[5, 6, 7], [5, 6]], [1.0, 0.0], [1.0, -1.0]),
        judged([[8], [8]], [1.0, 1.0], [0.0, 0.0], flat=True),
        judged([[8, 9], [9]], [0.0, 0.0], [0.0, 0.0], flat=True),
        judged([[8, 9], [9]], [0.5, 0.5], [0.0, 0.0], flat=True),
    ]
    found = values(measure(batch, pass_reward=1.0))
    # 3 of 8 reach 1; of four groups one is all right, one all wrong (0 or less), one equal in between.
    assert found["reward/pass_fraction"] == pytest.approx(3 / 8)
    assert (found["reward/all_right_fraction"], found["reward/all_wrong_fraction"]) == (0.25, 0.25)
    assert found["reward/zero_spread_fraction"] == 0.75
    assert found["reward/low_spread_fraction"] == 0.75  # the std of 1 and 0 is 0.5
    # Case n07. Right: 3 (cut off), 1, 1. Wrong: 2, 2, 1, 2, 1.
    assert found["length/right_mean"] == pytest.approx(5 / 3)
    assert (found["length/right_min"], found["length/right_max"]) == (1, 3)
    assert found["length/right_truncated_fraction"] == pytest.approx(1 / 3)
    assert found["length/wrong_mean"] == pytest.approx(8 / 5)
    assert found["length/wrong_truncated_fraction"] == 0.0
    assert not any("right" in name or "pass" in name for name in values(measure(batch)))


def test_repeated_runs_of_four_by_hand() -> None:
    # 1 2 3 4 1 2 3 4 has the runs 1234 2341 3412 4123 1234: one of five stood before. 5 6 7 8 9: none of two.
    batch = [judged([[1, 2, 3, 4, 1, 2, 3, 4], [5, 6, 7, 8, 9]], [1.0, 0.0], [1.0, -1.0])]
    assert values(measure(batch))["diversity/repeated_4_fraction"] == pytest.approx(1 / 7)
    short = [judged([[1, 1, 1], [2]], [1.0, 0.0], [1.0, -1.0])]
    assert "diversity/repeated_4_fraction" not in values(measure(short))


def test_the_lag_of_the_sampling_weights() -> None:
    batch = [judged([[5], [6]], [1.0, 0.0], [1.0, -1.0])]  # sampled with the weights of update 0
    assert values(measure(batch, updates=3))["sampler/lag_updates_mean"] == 3.0
    assert "sampler/lag_updates_mean" not in values(measure(batch))
