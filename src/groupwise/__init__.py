"""groupwise: train language models with group-relative policy optimisation.

`train` is the same run that the command makes:

    import groupwise

    def shorter_is_better(completions, **columns):
        return [-len(c) / 100 for c in completions]

    result = groupwise.train(
        {"model": "smollm2-135m", "rollout": {"max_new_tokens": 32}, "training": {"steps": 20}},
        rewards=[shorter_is_better],
        train=[{"prompt": "Tell me about otters."}, {"prompt": "What is a fjord?"}],
    )
    print(result.series("reward/mean"))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.config import LoadedConfig, RunConfig
    from groupwise.training.loop import Result

__all__ = ["train"]


def train(
    config: str | Path | Mapping[str, Any] | RunConfig | LoadedConfig,
    overrides: Sequence[str] = (),
    *,
    rewards: Sequence[Callable[..., Any]] = (),
    train: Sequence[Mapping[str, Any]] | None = None,
    held_out: Sequence[Mapping[str, Any]] | None = None,
) -> Result:
    """Train a model and give what the run ended with.

    Args:
        config: a YAML file, the same as a mapping, or a checked configuration.
        overrides: `training.steps=10` and the like.
        rewards: functions in addition to the configuration's; a pair (function, weight) sets a weight other than 1.
        train: rows instead of `prompts.train`, each a mapping with a prompt and any columns.
        held_out: rows instead of `prompts.held_out`.

    Raises:
        GroupwiseError: one sentence naming what is wrong, where, and the remedy.
    """
    from groupwise.config import load
    from groupwise.training import loop, setup
    from groupwise.training.inputs import read_inputs

    inputs = read_inputs(load(config, overrides), rewards=rewards, train=train, held_out=held_out)
    return loop.train(setup.assemble(inputs))
