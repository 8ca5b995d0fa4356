"""Which rollouts show what a check has found."""

from dataclasses import replace

import numpy as np
import pytest

from groupwise import registry
from groupwise.config.health import CHECKS
from groupwise.health.examples import _BY_CHECK, examples_of
from groupwise.records import Group, Prompt, Rollout, StopReason, TrainingGroup, Verdict


def rollout(index: int, ids: list[int], *, entropy: float, sampler: float = -1.0) -> Rollout:
    n = len(ids)
    return Rollout(
        prompt_id="a:0",
        group_index=index,
        token_ids_T=np.array(ids, dtype=np.int32),
        trainable_T=np.ones(n, dtype=np.bool_),
        sampler_logprobs_T=np.full(n, sampler, dtype=np.float32),
        kept_mass_T=None,
        entropy_T=np.full(n, entropy, dtype=np.float32),
        stop_reason=StopReason.LENGTH if n == 9 else StopReason.STOP,
        policy_version=0,
        text="",
    )


def batch() -> list[TrainingGroup]:
    rollouts = (
        rollout(0, [1, 2, 3], entropy=0.5),
        rollout(1, [7] * 9, entropy=0.1),
        rollout(2, [1, 2, 3, 4, 5], entropy=2.0, sampler=-3.0),
    )
    verdicts = (
        Verdict(reward=1.0, parts={}),
        Verdict(reward=0.0, parts={}),
        Verdict(reward=None, parts={}, failure="it raised"),
    )
    prompt = Prompt(id="a:0", source="a", messages=None, text="x", token_ids=np.array([1], dtype=np.int32))
    ones = tuple(np.full(len(r.token_ids_T), -1.0, dtype=np.float32) for r in rollouts)
    far = tuple(o - k for k, o in enumerate(ones))
    return [
        TrainingGroup(
            group=Group(prompt=prompt, rollouts_G=rollouts, verdicts_G=verdicts),
            advantages_GT=tuple(
                np.full(len(r.token_ids_T), a) for a, r in zip((1, -2, 0), rollouts, strict=True)
            ),
            in_loss_G=np.array([True, True, False]),
            zero_spread=False,
            old_logprobs_GT=ones,
            reference_logprobs_GT=far,
        )
    ]


@pytest.mark.parametrize(
    ("check", "indices"),
    [
        ("length_inflation", [1, 2]),
        ("repetition", [1, 0]),
        ("entropy_collapse", [1, 0]),
        ("truncation", [1]),
        ("reward_failures", [2]),
        ("reward_hacking", [0, 1]),
        ("gradient_spike", [1, 0]),
        ("sampler_mismatch", [2, 0]),
        ("kl_runaway", [2, 1]),
        ("dead_groups", []),
        ("learning_rate_range", []),
        ("mine.py:odd", [0, 1]),
    ],
)
def test_those_that_show_it_best_come_first(check: str, indices: list[int]) -> None:
    assert [each.group_index for each in examples_of(check, batch())] == indices


def test_a_dead_group_is_shown_by_its_own() -> None:
    live, dead = batch()[0], replace(batch()[0], zero_spread=True)
    found = examples_of("dead_groups", [live, dead])
    assert [(each.group_index, each.why) for each in found] == [
        (0, "of a group with equal rewards"),
        (1, "of a group with equal rewards"),
    ]


def test_every_check_says_what_shows_it() -> None:
    assert set(_BY_CHECK) == set(registry.names(CHECKS))
    assert examples_of("truncation", []) == ()
