"""Which prompts a run asks, in which order, and how many batches that is."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.config import RunConfig
from groupwise.errors import ConfigError
from groupwise.prompts.curriculum import Curriculum
from groupwise.prompts.order import PromptOrder
from groupwise.records import Prompt


def order_of(config: RunConfig, sources: Sequence[str], per_step: int) -> PromptOrder:
    """Which of the prompts make each batch.

    Args:
        config: with the sources' weights.
        sources: of each prompt.
        per_step: prompts in a batch.

    Raises:
        ConfigError, DataError: see `PromptOrder`.
    """
    weights = {source.called: source.weight for source in config.prompts.train if source.weight is not None}
    return PromptOrder(
        len(sources),
        per_step,
        shuffle=config.prompts.shuffle,
        seed=config.run.seed,
        drop_last=config.prompts.drop_last,
        sources=sources,
        weights=weights or None,
    )


def curriculum_of(config: RunConfig, prompts: Sequence[Prompt]) -> Curriculum | None:
    """Which prompts are ready; None where all always are."""
    chosen = config.prompts.curriculum
    if chosen is None:
        return None
    return Curriculum(chosen, prompts, pass_reward=config.evaluate.pass_reward)


def steps_of(config: RunConfig, order: PromptOrder) -> int:
    """Batches in the run: as given, or so many epochs, one by default."""
    steps = config.training.steps or order.steps(config.training.epochs or 1.0)
    if config.training.warmup_steps > steps:
        raise ConfigError(
            f"training.warmup_steps is {config.training.warmup_steps}, more than the run's {steps} steps; the learning "
            "rate would never reach its value"
        )
    return steps
