"""Finds the rewards that a configuration and Python name, and checks them before any model is loaded."""

from __future__ import annotations

import dataclasses
import inspect
import math
import numbers
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from groupwise import registry
from groupwise.config.choice import check_settings, path_settings, plain_message
from groupwise.config.rewards import SCORERS, RewardConfig, fault_of_label
from groupwise.errors import ConfigError, GroupwiseError, raised
from groupwise.rewards.calling import call_all, make_call
from groupwise.rewards.function import GIVEN, RewardFunction, read_function
from groupwise.rewards.reward import Rewards
from groupwise.rewards.term import Term
from groupwise.rewards.worker import Wanted
from groupwise.rewards.workers import WorkerPool


def build(
    configs: Sequence[RewardConfig],
    *,
    base: Path,
    functions: Sequence[Callable[..., Any] | tuple[Callable[..., Any], float | Mapping[str, Any]]] = (),
    weights: Sequence[float] | None = None,
    place: str = "rewards",
) -> Rewards:
    """Find the rewards, check their settings and read what data columns they need.

    Args:
        configs: those that the configuration names.
        base: folder that `file.py:function` and modules are looked up from.
        functions: further rewards as Python functions, of weight 1, or as pairs (function, weight) or (function,
            mapping), whose keys are those of an entry under `rewards` in a configuration, aside from `name`.
        weights: one per function, in place of pairs.
        place: the key that they stand under, for errors.

    Raises:
        ConfigError: no such function, a setting it does not have, another number of weights than functions, weights
            that teach nothing, a gate on a reward that is not there; says which reward. That labels differ is checked
            with the configuration.
    """
    chosen = [_from_config(f"{place}[{i}]", config, base) for i, config in enumerate(configs)]
    chosen += [_from_python(i, item) for i, item in enumerate(_weighted(functions, weights))]
    if not chosen:
        raise ConfigError("there is no reward, so there is nothing to learn from; name one under rewards")
    if not any(config.weight and _ever_counts(config.schedule) for config, _ in chosen):
        raise ConfigError("the weight of every reward is 0, so there is nothing to learn from")
    labels = _labels(chosen)
    _check_gates(chosen, labels)
    return Rewards(
        [
            _function(config, fields, label, base)
            for (config, fields), label in zip(chosen, labels, strict=True)
        ]
    )


def _function(config: RewardConfig, fields: dict[str, Any], label: str, base: Path) -> RewardFunction:
    pool = None
    if config.workers is not None or config.timeout_seconds is not None:
        wanted = Wanted(label=label, name=config.name, package=SCORERS, base=base)
        if fields.get("from_python"):
            pickled = _pickled(fields["function"], fields["place"])
            wanted = dataclasses.replace(wanted, name=None, pickled=pickled)
        pool = WorkerPool(wanted, count=config.workers or 1, timeout_seconds=config.timeout_seconds)
    return RewardFunction(
        **fields,
        term=Term(
            label=label,
            weight=config.weight,
            schedule=config.schedule,
            gate=config.gate,
            normalise=config.normalise,
            smoothing=config.smoothing,
        ),
        on_failure=config.on_failure,
        failure_value=config.failure_value,
        pool=pool,
    )


def _ever_counts(schedule: Sequence[tuple[int, float]]) -> bool:
    return not schedule or any(factor != 0 for _, factor in schedule)


def _check_gates(chosen: Sequence[tuple[RewardConfig, dict[str, Any]]], labels: Sequence[str]) -> None:
    for (config, fields), label in zip(chosen, labels, strict=True):
        decides = None if config.gate is None else config.gate.reward
        if decides == label:
            raise ConfigError(
                f"{fields['place']}.gate.reward is {decides!r}, the reward itself; name another"
            )
        if decides is not None and decides not in labels:
            near = registry.nearest(decides, labels)
            hint = f"did you mean {near!r}?" if near else f"there are {', '.join(labels)}"
            raise ConfigError(f"{fields['place']}.gate.reward: no reward has the label {decides!r}; {hint}")


def _pickled(function: Callable[..., Any], place: str) -> bytes:
    """A function's module and name, for a process that can import it."""
    remedy = "put it at the top level of a module, or name it in the configuration as file.py:function"
    if getattr(function, "__module__", None) == "__main__" or type(function).__module__ == "__main__":
        raise ConfigError(
            f"{place} is defined in the script that is run, which worker processes cannot import safely; {remedy}"
        )
    try:
        return pickle.dumps(function)
    except Exception as error:
        raise ConfigError(f"{place} cannot be run in worker processes ({raised(error)}); {remedy}") from None


def _weighted(functions: Sequence[Any], weights: Sequence[float] | None) -> list[Any]:
    """The functions as pairs with the weights that were given beside them."""
    if weights is None:
        return list(functions)
    if (
        isinstance(weights, str | Mapping)
        or not hasattr(weights, "__len__")
        or not hasattr(weights, "__iter__")
    ):
        raise ConfigError(
            f"the weights of the rewards are {weights!r:.60}; give a list with one number per function"
        )
    if len(weights) != len(functions):
        raise ConfigError(
            f"there are {len(functions)} reward functions but {len(weights)} weights; give one weight per function, in "
            "the same order"
        )
    pair = next((i for i, item in enumerate(functions) if isinstance(item, tuple | list)), None)
    if pair is not None:
        raise ConfigError(f"reward function {pair} is a pair, and weights were given as well; keep one")
    return list(zip(functions, weights, strict=True))


def _from_config(place: str, config: RewardConfig, base: Path) -> tuple[RewardConfig, dict[str, Any]]:
    built_in = ":" not in config.name
    try:
        function = registry.find(SCORERS, config.name, base=base)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error.__cause__
    # Read first without settings: it refuses what cannot be called at all.
    read_function(function, place=place, settings={}, columns={}, built_in=built_in)
    settings = _settings(function, config.settings, f"{place}.settings", base)
    fields = read_function(
        function, place=place, settings=settings, columns=config.columns, built_in=built_in
    )
    if built_in:
        for argument in _needed_with(function, settings):  # such as keywords, where no word is a setting
            if argument not in fields["needed"]:
                fields["needed"][argument] = fields["wanted"].pop(argument, argument)
        none: dict[str, list[Any]] = {
            key: [] for key in ("completions", *fields["insists"], *fields["needed"])
        }
        (outcome,) = call_all([make_call(function, {**none, **settings})])
        if isinstance(outcome.error, ValueError | TypeError | GroupwiseError):
            # Settings that do not fit together are found on no rollouts too.
            raise ConfigError(f"{place} ({config.name}): {outcome.error}") from None
        if outcome.error is not None:
            raise outcome.error
    return config, fields | {"place": place}


def _needed_with(function: Callable[..., Any], settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Columns that a built-in scorer cannot do without under its settings, as its module says."""
    beside = vars(sys.modules[function.__module__]).get("needed_columns")
    if beside is None:
        return ()
    known = registry.settings(beside)
    columns: tuple[str, ...] = beside(**{key: value for key, value in settings.items() if key in known})
    return columns


def _settings(
    function: Callable[..., Any], given: Mapping[str, Any], place: str, base: Path
) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    for key in given:
        parameter = parameters.get(key)
        by_position = parameter is not None and parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        if key in GIVEN or by_position:
            raise ConfigError(
                f"{place}: {key!r} of {registry.name_of(function)} is filled from the rollouts or the data; "
                "settings are the arguments after a * in its signature"
            )
    try:
        checked = check_settings(function, given)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from None
    files = path_settings(function)
    return {
        key: files[key].resolved(checked[key], base)
        if key in files and checked[key] is not None
        else checked[key]
        for key in given
    }


def _from_python(i: int, item: Any) -> tuple[RewardConfig, dict[str, Any]]:
    function: Any = item
    given: Mapping[str, Any] = {}
    if isinstance(item, tuple | list):
        if len(item) != 2:
            raise ConfigError(
                f"reward function {i}: a pair is (function, weight), but this has {len(item)} items"
            )
        function, given = item[0], item[1] if isinstance(item[1], Mapping) else {"weight": item[1]}
    if not _finite(given.get("weight", 1.0)):
        raise ConfigError(f"reward function {i}: the weight {given['weight']!r:.60} is not a finite number")
    if isinstance(function, numbers.Real):
        raise ConfigError(
            f"reward function {i} is the number {function!r:.60}; a weight stands in a pair with its function, as in "
            f"[(function, {function!r:.60})]"
        )
    if not callable(function):
        raise ConfigError(
            f"reward function {i} is a {type(function).__name__} ({function!r:.60}), not a function; "
            "built-in scorers are named in the configuration, under rewards"
        )
    place = f"the function {registry.name_of(function)}"
    config = _options(i, given)
    # Read first without settings: it refuses what cannot be called at all.
    fields = read_function(function, place=place, settings={}, columns={}, from_python=True)
    if config.settings or config.columns:
        settings = _settings(function, config.settings, f"{place}: settings", Path.cwd())
        fields = read_function(
            function, place=place, settings=settings, columns=config.columns, from_python=True
        )
    return config, fields | {"place": place, "from_python": True}


def _options(i: int, given: Mapping[str, Any]) -> RewardConfig:
    """The mapping of a pair, as the entry of a configuration that it stands for."""
    known = [key for key in RewardConfig.model_fields if key != "name"]
    unknown = next((str(key) for key in given if key not in known), None)
    if unknown is not None:
        near = registry.nearest(unknown, known)
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(known)}"
        raise ConfigError(f"reward function {i}: there is no {unknown!r} beside a function; {hint}")
    try:
        return RewardConfig.model_validate({"name": "given in Python", **given})
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"reward function {i}: {key + ': ' if key else ''}{plain_message(first)}") from None


def _finite(weight: Any) -> bool:
    """True for Python's and numpy's numbers that a float can hold."""
    try:
        return (
            isinstance(weight, numbers.Real) and not isinstance(weight, bool) and math.isfinite(float(weight))
        )
    except OverflowError:
        return False


def _labels(chosen: Sequence[tuple[RewardConfig, dict[str, Any]]]) -> list[str]:
    """The label of each: as given, or the function's name, with a number where it is taken."""
    taken: list[str] = [config.label for config, _ in chosen if config.label is not None]
    twice = next((label for label in taken if taken.count(label) > 1), None)
    if twice is not None:
        raise ConfigError(f"the label {twice!r} is given to two rewards; each needs a name of its own")
    labels = []
    for config, fields in chosen:
        label = config.label
        if label is None:
            name = registry.name_of(fields["function"]).strip("<>")
            fault = fault_of_label(name)
            if fault is not None:
                raise ConfigError(f"{fields['place']}: its name {fault}; give it another __name__")
            label, number = name, 2
            while label in taken:
                label, number = f"{name}_{number}", number + 1
            taken.append(label)
        labels.append(label)
    return labels
