"""Groups: rollouts sampled and scored."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from groupwise.errors import RewardError
from groupwise.records import Group, Prompt, Rollout, Verdict
from groupwise.rollouts.engine import Engine, Sampling

Score = Callable[[Sequence[Prompt], Sequence[Rollout]], list[Verdict]]
"""One prompt per rollout in, one verdict per rollout out, in the same order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The groups of a batch and what they took."""

    groups: list[Group]
    """One per prompt, in order."""
    generate_seconds: float
    """Sampling."""
    reward_seconds: float
    """Scoring."""


def collect(
    engine: Engine,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    score: Score,
    *,
    group_size: int,
    seed: Sequence[int],
) -> Collected:
    """Sample a group per prompt and score all rollouts in one call.

    Args:
        engine: what samples.
        prompts: the batch.
        sampling: how tokens are drawn.
        score: the rewards.
        group_size: rollouts per prompt.
        seed: see `Engine.generate`.

    Raises:
        EngineError: sampling failed.
        RewardError: scoring failed, or did not give one verdict per rollout.
    """
    started = time.perf_counter()
    rollouts_PG = engine.generate(prompts, sampling, group_size=group_size, seed=seed)
    sampled = time.perf_counter()
    flat = [
        (prompt, rollout)
        for prompt, rollouts in zip(prompts, rollouts_PG, strict=True)
        for rollout in rollouts
    ]
    verdicts = score([prompt for prompt, _ in flat], [rollout for _, rollout in flat])
    if len(verdicts) != len(flat):
        raise RewardError(
            f"scoring gave {len(verdicts)} verdicts for {len(flat)} rollouts; a score function returns one per "
            "rollout, in the same order"
        )
    following = iter(verdicts)
    groups = [
        Group(prompt=prompt, rollouts_G=tuple(rollouts), verdicts_G=tuple(next(following) for _ in rollouts))
        for prompt, rollouts in zip(prompts, rollouts_PG, strict=True)
    ]
    return Collected(
        groups=groups, generate_seconds=sampled - started, reward_seconds=time.perf_counter() - sampled
    )
