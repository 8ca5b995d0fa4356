"""What scores a rollout: functions of lists, the built-in scorers, and how their values become one reward."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.rewards.batch import TrainerState
    from groupwise.rewards.reward import Rewards
    from groupwise.rewards.setup import build

__all__ = ["Rewards", "TrainerState", "build"]

_WHERE = {"Rewards": "reward", "TrainerState": "batch", "build": "setup"}


def __getattr__(name: str) -> Any:
    # Read when first asked for: a worker process needs none of it, and is started anew after each time-out.
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
