"""Held-out prompts sampled by the same sampler as training, scored, and what passes counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from groupwise.config.evaluate import EvaluateConfig
from groupwise.config.rollout import RolloutConfig
from groupwise.evaluate.pass_at_k import pass_at_k
from groupwise.health.metric import Mean, Metric, Total
from groupwise.records import Group, Prompt, Rollout, StopReason, Verdict
from groupwise.rollouts.collect import collect
from groupwise.rollouts.engine import Engine, Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The result on one set of prompts."""

    groups: list[Group]
    """Every rollout with its verdict, in the order of the prompts."""
    metrics: dict[str, Metric]
    """`eval/...`, as sums and counts."""


def passes(verdict: Verdict, pass_reward: float) -> bool:
    """Whether a rollout passes: it has a total reward, and that is at least `pass_reward`, but for rounding."""
    return verdict.reward is not None and verdict.reward >= pass_reward - 1e-9


def evaluate(
    engine: Engine,
    prompts: Sequence[Prompt],
    score: Callable[[Sequence[Prompt], Sequence[Rollout]], list[Verdict]],
    config: EvaluateConfig,
    rollout: RolloutConfig,
    *,
    seed: Sequence[int],
) -> Evaluation:
    """Sample every prompt and count what passes.

    A rollout without a reward does not pass, and is counted under `eval/reward_mean` nowhere. pass@1 is the mean over
    all samples of all prompts, and pass@k the mean over prompts of its unbiased estimate (Chen et al. 2021, arXiv
    2107.03374, equation 1). A greedy response beside the samples is in none of these numbers but its own.

    Args:
        engine: what samples.
        prompts: held out from training.
        score: the rewards.
        config: greedy or sampled, how many, what passes.
        rollout: the run's sampling limits, for what `config` leaves out.
        seed: see `Engine.generate`; the same seed gives the same samples for the same weights.
    """
    sampling = Sampling(
        max_new_tokens=config.max_new_tokens or rollout.max_new_tokens, temperature=config.temperature
    )
    chosen = prompts if config.prompts is None else prompts[: config.prompts]
    collected = collect(
        engine, chosen, sampling, score, group_size=config.samples, seed=seed, greedy=config.greedy
    )
    verdicts = [v for group in collected.groups for v in group.verdicts_G]
    rollouts = [r for group in collected.groups for r in group.rollouts_G]
    passed_PG = [[passes(v, config.pass_reward) for v in group.verdicts_G] for group in collected.groups]
    metrics: dict[str, Metric] = {
        "eval/pass@1": Mean.of([float(passed) for passed_G in passed_PG for passed in passed_G]),
        "eval/response_count": Total(len(rollouts)),
        "eval/reward_mean": Mean.of([v.reward for v in verdicts if v.reward is not None]),
        "eval/length_mean": Mean.of([len(r.token_ids_T) for r in rollouts]),
        "eval/truncated_fraction": Mean.of([float(r.stop_reason is StopReason.LENGTH) for r in rollouts]),
    }
    for k in config.k:
        if k > 1:
            rates_P = [pass_at_k(len(passed_G), sum(passed_G), k) for passed_G in passed_PG]
            metrics[f"eval/pass@{k}"] = Mean.of(rates_P)
    greedy = [passes(g.greedy.verdict, config.pass_reward) for g in collected.groups if g.greedy is not None]
    if greedy:
        metrics["eval/greedy_pass@1"] = Mean.of([float(passed) for passed in greedy])
    return Evaluation(groups=collected.groups, metrics=metrics)
