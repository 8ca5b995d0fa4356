"""What is known of a run beside its metrics."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from groupwise import registry
from groupwise.config import RunConfig
from groupwise.config.choice import Choice
from groupwise.config.objective import SURROGATES


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Settings that checks judge by; None for what is not known, as of a log of another trainer."""

    group_size: int | None = None
    """Rollouts per prompt."""
    rollouts: int | None = None
    """Rollouts per step."""
    updates_per_step: int | None = None
    """Optimiser steps per batch."""
    clip_width: float | None = None
    """How far the ratio may move from 1 before a bound bites; None also for a surrogate without bounds."""
    lora: bool | None = None
    """An adapter is trained."""
    learning_rate: float | None = None
    """The peak of the schedule."""
    max_grad_norm: float | None = None
    """What gradients are scaled down to; None also for never."""

    @classmethod
    def of(cls, config: RunConfig) -> Facts:
        """Those of a configuration."""
        rollout, training = config.rollout, config.training
        return cls(
            group_size=rollout.group_size,
            rollouts=rollout.prompts_per_step * rollout.group_size,
            updates_per_step=training.updates_per_batch * training.mini_batches,
            clip_width=clip_width(config.objective.surrogate),
            lora=config.lora is not None,
            learning_rate=training.learning_rate,
            max_grad_norm=training.max_grad_norm,
        )


def clip_width(surrogate: Choice) -> float | None:
    """What the surrogate's module says of its own bounds; None where it has none, or is a user's."""
    if ":" in surrogate.name:
        return None
    function = registry.find(SURROGATES, surrogate.name)
    width = getattr(sys.modules[function.__module__], "width", None)
    if width is None:
        return None
    chosen = {key: surrogate.settings[key] for key in registry.settings(width) if key in surrogate.settings}
    return None if len(chosen) < len(registry.settings(width)) else float(width(**chosen))
