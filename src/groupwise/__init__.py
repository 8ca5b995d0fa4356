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

The other names are those that an extension needs; docs/api.md lists them, and docs/extending.md uses each. Whatever
else is in the rooms below may change from one version to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.config import LoadedConfig, RunConfig
    from groupwise.errors import ConfigError, DataError, EngineError, GroupwiseError, RewardError
    from groupwise.health.facts import Facts
    from groupwise.health.history import History
    from groupwise.model.load import Policy
    from groupwise.records import Finding, Prompt, Rollout, Severity, StopReason
    from groupwise.records.rollout_file import read_rollouts
    from groupwise.rollouts.engine import Engine, Sampling
    from groupwise.training.distributed import leave
    from groupwise.training.loop import Result
    from groupwise.training.resume import Resumed

__all__ = [
    "ConfigError",
    "DataError",
    "Engine",
    "EngineError",
    "Facts",
    "Finding",
    "GroupwiseError",
    "History",
    "Policy",
    "Prompt",
    "Result",
    "RewardError",
    "Rollout",
    "Sampling",
    "Severity",
    "StopReason",
    "leave",
    "read_rollouts",
    "train",
]

_ROOMS = {
    "errors": ("ConfigError", "DataError", "EngineError", "GroupwiseError", "RewardError"),
    "health.facts": ("Facts",),
    "health.history": ("History",),
    "model.load": ("Policy",),
    "records": ("Finding", "Prompt", "Rollout", "Severity", "StopReason"),
    "records.rollout_file": ("read_rollouts",),
    "rollouts.engine": ("Engine", "Sampling"),
    "training.distributed": ("leave",),
    "training.loop": ("Result",),
}


def __getattr__(name: str) -> Any:
    """A public name from its room when it is first asked for, so that `import groupwise` loads nothing heavy."""
    room = next((room for room, names in _ROOMS.items() if name in names), None)
    if room is None:
        raise AttributeError(f"groupwise has no public name {name!r}; there are {', '.join(__all__)}")
    value = getattr(import_module(f"groupwise.{room}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)


def train(
    config: str | Path | Mapping[str, Any] | RunConfig | LoadedConfig | None = None,
    overrides: str | Sequence[str] = (),
    *,
    rewards: Callable[..., Any] | Sequence[Callable[..., Any] | tuple[Callable[..., Any], Any]] = (),
    reward_weights: Sequence[float] | None = None,
    train: Sequence[Mapping[str, Any]] | None = None,
    held_out: Sequence[Mapping[str, Any]] | None = None,
    resume: str | Path | None = None,
) -> Result:
    """Train a model and give what the run ended with.

    Args:
        config: a YAML file, the same as a mapping, or a checked configuration.
        overrides: `training.steps=10` and the like, one or a list of them.
        rewards: a function or functions in addition to the configuration's, none with method dpo; a pair (function,
            weight) sets a weight other than 1, and a pair (function, mapping) whatever else an entry under `rewards`
            has, such as `{"on_failure": "drop", "timeout_seconds": 2}`.
        reward_weights: one number per function of `rewards`, in place of pairs.
        train: rows instead of `prompts.train`, each a mapping with a prompt and any columns.
        held_out: rows instead of `prompts.held_out`.
        resume: a run folder to go on with, in place of a configuration; functions and rows that the run was started
            with in Python are given again.

    Raises:
        GroupwiseError: one sentence naming what is wrong, where, and the remedy.
    """
    from groupwise.config import load
    from groupwise.errors import ConfigError

    if (config is None) == (resume is None):
        raise ConfigError("give a configuration, or resume= with a run folder; one of the two")
    if config is not None:
        _check_config(config)
    functions, words = _functions(rewards), _words(overrides)
    _check_rows("train", train)
    _check_rows("held_out", held_out)
    if resume is not None:
        from groupwise.training import loop, start
        from groupwise.training.resume import open_run

        loaded, resumed = open_run(resume, words)
        if loaded.config.method == "dpo":
            return _on_pairs(loaded, functions or reward_weights, train, held_out, resumed)
        run = start.resume(
            loaded, resumed, rewards=functions, weights=reward_weights, train=train, held_out=held_out
        )
        return loop.train(run)
    assert config is not None
    loaded = load(config, words)
    if loaded.config.method == "dpo":
        return _on_pairs(loaded, functions or reward_weights, train, held_out)
    from groupwise.training.inputs import read_inputs, refuse_early

    inputs = read_inputs(loaded, rewards=functions, weights=reward_weights, train=train, held_out=held_out)
    refuse_early(loaded)
    from groupwise.training import loop, setup  # imports torch, so what is wrong is told before

    return loop.train(setup.assemble(inputs))


def _on_pairs(
    loaded: LoadedConfig, rewards: Any, train: Any, held_out: Any, resumed: Resumed | None = None
) -> Result:
    from groupwise.errors import ConfigError
    from groupwise.workbench import dpo
    from groupwise.workbench.preferences import read_preferences

    if rewards:
        raise ConfigError("rewards were given, but the method is dpo, which scores nothing; leave them out")
    if resumed is not None:
        return dpo.train(dpo.resume(loaded, resumed, train=train, held_out=held_out))
    return dpo.train(dpo.assemble(read_preferences(loaded, train=train, held_out=held_out)))


def _check_config(config: Any) -> None:
    from groupwise.config import LoadedConfig, RunConfig
    from groupwise.errors import ConfigError

    if not isinstance(config, str | Path | Mapping | RunConfig | LoadedConfig):
        raise ConfigError(
            f"config is {_kind(config)}; give the path of a YAML file, or a mapping such as "
            "{'model': 'smollm2-135m'}"
        )


def _functions(rewards: Any) -> list[Any]:
    from groupwise.errors import ConfigError

    if callable(rewards):
        return [rewards]
    if isinstance(rewards, str | Mapping) or not isinstance(rewards, Iterable):
        raise ConfigError(
            f"rewards is {_kind(rewards)}; give a list of functions or of pairs (function, weight), and name built-in "
            "scorers in the configuration, under rewards"
        )
    return list(rewards)


def _words(overrides: Any) -> list[str]:
    from groupwise.errors import ConfigError

    words = [overrides] if isinstance(overrides, str) else overrides
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise ConfigError(
            f"overrides is {_kind(overrides)}; give a list of texts such as ['training.steps=10']"
        )
    return list(words)


def _check_rows(name: str, rows: Any) -> None:
    from groupwise.errors import ConfigError

    if isinstance(rows, str | Path):
        raise ConfigError(
            f"{name} is the text or path {str(rows)!r:.60}, but rows are a list of mappings; a file is named in the "
            f"configuration, as prompts.{name}"
        )
    if hasattr(rows, "iloc"):
        raise ConfigError(f"{name} is {_kind(rows)}; give its rows as mappings: {name}.to_dict('records')")
    if rows is not None and (isinstance(rows, Mapping) or not isinstance(rows, Iterable)):
        raise ConfigError(f"{name} is {_kind(rows)}, but rows are a list of mappings, one per row")


def _kind(value: Any) -> str:
    """A wrong value for a message: None, or what it is with how it begins."""
    return "None" if value is None else f"of the type {type(value).__name__} ({value!r:.60})"
