"""The groups of a step: which prompts are asked, and what is drawn again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from groupwise.health.metric import Mean, Metric
from groupwise.records import Group, Prompt
from groupwise.rewards.reward import Taken
from groupwise.rollouts.collect import Collected, Redraw, collect
from groupwise.training.advantages import has_spread, without_penalty
from groupwise.training.measure import of_collecting
from groupwise.training.setup import Run


def draw(run: Run, step: int) -> tuple[Collected, dict[str, Metric], Taken]:
    """Sample and score the groups of a step, 1 for the first.

    Changes nothing that an update reads, since with `rollout.overlap` another step's updates are made meanwhile.

    Returns:
        The groups, what sampling says of itself, and what the rewards do.
    """
    config, curriculum = run.config, run.curriculum
    ready_P = None if curriculum is None else curriculum.begin(step - 1)
    taken = run.order.next(ready_P)
    if not taken and ready_P is not None:  # a source of little weight may have all that is ready, far ahead
        taken = np.flatnonzero(ready_P)[: config.rollout.prompts_per_step].tolist()
    redraw = None
    if config.rollout.max_redraws:

        def more(count: int) -> list[Prompt]:
            found = run.order.more(count, taken, ready_P)
            taken.extend(found)
            return [run.prompts[i] for i in found]

        redraw = Redraw(
            rounds=config.rollout.max_redraws,
            more=more,
            has_spread=lambda group: has_spread(group, config.objective),
        )
    temperature = run.temperature.at(step - 1, factor=run.actions.factor("temperature"))
    collected = collect(
        run.engine,
        [run.prompts[i] for i in taken],
        replace(run.sampling, temperature=temperature),
        run.score(step - 1),
        group_size=config.rollout.group_size,
        seed=(config.run.seed, step),
        greedy="greedy_rewards" in run.inputs.estimate.needs,
        redraw=redraw,
    )
    metrics = of_collecting(collected)
    if curriculum is not None and ready_P is not None:
        curriculum.learn((group.prompt.id, _rewards(group)) for group in collected.sampled)
        metrics["curriculum/threshold"] = Mean(curriculum.threshold, 1)
        metrics["curriculum/ready_fraction"] = Mean.of(ready_P.astype(float))
        metrics["curriculum/success_mean"] = Mean.of(curriculum.success_P)
    return collected, metrics, run.inputs.rewards.take_metrics()


def _rewards(group: Group) -> list[float]:
    """What each rollout earned, before a penalty on its length; those without a reward are left out."""
    rewards = (without_penalty(verdict).reward for verdict in group.verdicts_G)
    return [reward for reward in rewards if reward is not None]
