"""The contract, run against every engine, and against broken ones, which must fail it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from groupwise.model.load import Policy
from groupwise.records import Prompt, Rollout, StopReason
from groupwise.rollouts.engine import Engine, Sampling
from tests.rollouts.engine_contract import SAMPLINGS, STOPS, EngineContract
from tests.rollouts.examples import engine_of, random_prompts


class TestInProcess(EngineContract):
    def build(self, policy: Policy) -> Engine:
        return engine_of(policy)


class TestInProcessPlain(EngineContract):
    """As for models that do not take packed tokens."""

    def build(self, policy: Policy) -> Engine:
        return engine_of(policy, share_prefix=False)


class _Broken:
    """An engine that alters what a right one gives."""

    same_as_trainer = True

    def __init__(self, engine: Engine, alter: Callable[[Rollout], Rollout]) -> None:
        self.engine, self.alter = engine, alter

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        group_size: int,
        seed: Sequence[int],
        greedy: bool = False,
    ) -> list[list[Rollout]]:
        rollouts_PG = self.engine.generate(prompts, sampling, group_size=group_size, seed=seed, greedy=greedy)
        return [[self.alter(rollout) for rollout in rollouts] for rollouts in rollouts_PG]

    def load_weights(self, version: int, source: Any) -> None:
        self.engine.load_weights(version, source)

    def close(self) -> None:
        self.engine.close()


def untruncated(rollout: Rollout) -> Rollout:
    assert rollout.kept_mass_T is not None
    return replace(rollout, sampler_logprobs_T=rollout.sampler_logprobs_T + np.log(rollout.kept_mass_T))


def without_stop_token(rollout: Rollout) -> Rollout:
    if rollout.stop_reason is not StopReason.STOP or len(rollout.token_ids_T) == 1:
        return rollout
    names = ("token_ids_T", "trainable_T", "sampler_logprobs_T", "kept_mass_T", "entropy_T")
    return replace(rollout, **{n: getattr(rollout, n)[:-1] for n in names})


def truncated_as_stopped(rollout: Rollout) -> Rollout:
    return replace(rollout, stop_reason=StopReason.STOP)


def stop_token_untrained(rollout: Rollout) -> Rollout:
    trainable = rollout.trainable_T.copy()
    trainable[-1] = rollout.stop_reason is StopReason.LENGTH
    return replace(rollout, trainable_T=trainable)


def one_place_late(rollout: Rollout) -> Rollout:
    return replace(rollout, sampler_logprobs_T=np.roll(rollout.sampler_logprobs_T, 1))


def index_of_another(rollout: Rollout) -> Rollout:
    return replace(rollout, group_index=rollout.group_index ^ 1)


@pytest.mark.parametrize(
    "alter",
    [
        untruncated,
        without_stop_token,
        truncated_as_stopped,
        stop_token_untrained,
        one_place_late,
        index_of_another,
    ],
)
def test_a_broken_engine_fails(
    build_policy: Callable[..., Policy], alter: Callable[[Rollout], Rollout]
) -> None:
    policy = build_policy(3, stop_token_ids=STOPS, context_tokens=64)
    broken = _Broken(engine_of(policy), alter)
    with pytest.raises(AssertionError):
        TestInProcess().test_rollouts(broken, policy, random_prompts((5, 11, 1, 7)), SAMPLINGS["top_k"])
