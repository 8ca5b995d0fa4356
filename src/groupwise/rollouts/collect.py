"""Groups: rollouts sampled and scored."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from groupwise.errors import RewardError
from groupwise.records import Baseline, Group, Prompt, Rollout, Verdict
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
    greedy: bool = False,
) -> Collected:
    """Sample a group per prompt and score all rollouts in one call.

    Args:
        engine: what samples.
        prompts: the batch.
        sampling: how tokens are drawn.
        score: the rewards.
        group_size: rollouts per prompt.
        seed: see `Engine.generate`.
        greedy: sample and score a greedy response to each prompt as well, in the same pass.

    Raises:
        EngineError: sampling failed.
        RewardError: scoring failed, or did not give one verdict per rollout.
    """
    started = time.perf_counter()
    rollouts_PG = engine.generate(prompts, sampling, group_size=group_size, seed=seed, greedy=greedy)
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
        _group(prompt, rollouts, [next(following) for _ in rollouts], greedy=greedy)
        for prompt, rollouts in zip(prompts, rollouts_PG, strict=True)
    ]
    return Collected(
        groups=groups, generate_seconds=sampled - started, reward_seconds=time.perf_counter() - sampled
    )


def _group(
    prompt: Prompt, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict], *, greedy: bool
) -> Group:
    """A group; with `greedy` the last response stands beside it."""
    baseline = None
    if greedy:
        baseline = Baseline(rollout=rollouts[-1], verdict=verdicts[-1])
        rollouts, verdicts = rollouts[:-1], verdicts[:-1]
    return Group(prompt=prompt, rollouts_G=tuple(rollouts), verdicts_G=tuple(verdicts), greedy=baseline)
