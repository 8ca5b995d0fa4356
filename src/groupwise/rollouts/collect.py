"""Groups: rollouts sampled and scored, and those without spread drawn again where that is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from groupwise.errors import RewardError
from groupwise.records import Baseline, Group, Prompt, Rollout, Verdict
from groupwise.rollouts.engine import Engine, Sampling

Score = Callable[[Sequence[Prompt], Sequence[Rollout]], list[Verdict]]
"""One prompt per rollout in, one verdict per rollout out, in the same order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redraw:
    """Dynamic sampling (DAPO, Yu et al. 2025, arXiv 2503.14476, section 3.2): groups without spread are replaced."""

    rounds: int
    """How often at most within a step."""
    more: Callable[[int], list[Prompt]]
    """The next prompts, that many at most, none of which was used in this step."""
    has_spread: Callable[[Group], bool]
    """True when the rewards of a group are not all equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The groups of a batch and what they took."""

    groups: list[Group]
    """One per prompt, in order; where some were replaced, those with spread come first, in the order of drawing."""
    generate_seconds: float
    """Sampling."""
    reward_seconds: float
    """Scoring."""
    left_out: list[Group] = field(default_factory=list)
    """Groups without spread that were sampled, scored and replaced."""
    redraws: int = 0
    """How often more prompts were drawn."""

    @property
    def sampled(self) -> list[Group]:
        """All groups that were paid for."""
        return [*self.groups, *self.left_out]


def collect(
    engine: Engine,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    score: Score,
    *,
    group_size: int,
    seed: Sequence[int],
    greedy: bool = False,
    redraw: Redraw | None = None,
) -> Collected:
    """Sample a group per prompt and score all rollouts in one call.

    With `redraw` as many further prompts as there are groups without spread are sampled and scored, again and again,
    until every group has spread, the rounds are used up or no prompt is left. What is still missing then is made up
    by groups without spread, the first drawn first.

    Args:
        engine: what samples.
        prompts: the batch.
        sampling: how tokens are drawn.
        score: the rewards.
        group_size: rollouts per prompt.
        seed: see `Engine.generate`.
        greedy: sample and score a greedy response to each prompt as well, in the same pass.
        redraw: replaces groups without spread; None keeps them.

    Raises:
        EngineError: sampling failed.
        RewardError: scoring failed, or did not give one verdict per rollout.
    """

    def drawn(asked: Sequence[Prompt]) -> Collected:
        return _collect_once(engine, asked, sampling, score, group_size=group_size, seed=seed, greedy=greedy)

    first = drawn(prompts)
    if redraw is None:
        return first
    found = [group for group in first.groups if redraw.has_spread(group)]
    flat = [group for group in first.groups if not redraw.has_spread(group)]
    generate, reward, rounds = first.generate_seconds, first.reward_seconds, 0
    while len(found) < len(prompts) and rounds < redraw.rounds:
        asked = redraw.more(len(prompts) - len(found))
        if not asked:
            break
        rounds += 1
        more = drawn(asked)
        generate, reward = generate + more.generate_seconds, reward + more.reward_seconds
        for group in more.groups:
            (found if redraw.has_spread(group) else flat).append(group)
    if rounds == 0:
        return first
    missing = len(prompts) - len(found)
    return Collected(
        groups=found + flat[:missing],
        left_out=flat[missing:],
        redraws=rounds,
        generate_seconds=generate,
        reward_seconds=reward,
    )


def _collect_once(
    engine: Engine,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    score: Score,
    *,
    group_size: int,
    seed: Sequence[int],
    greedy: bool,
) -> Collected:
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
