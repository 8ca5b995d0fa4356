"""One reward function: what it is called with, read from its signature."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from groupwise.errors import ConfigError, DataError
from groupwise.registry import name_of, nearest
from groupwise.rewards.term import Term
from groupwise.rewards.workers import WorkerPool

GIVEN = (
    "prompts",
    "completions",
    "completion_ids",
    "stop_reasons",
    "group_ids",
    "trainer_state",
    "log_extra",
    "log_metric",
)
"""What every reward can name beside the data's columns; a column of the same name is reached through `columns`.

A function with `**kwargs` is given all of them but `group_ids`, which says by being named that it compares rollouts.
"""

_EMPTY = inspect.Parameter.empty


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardFunction:
    """A function with its weight, its settings and the data columns it reads."""

    term: Term
    """Its label, weight and conditions in the sum."""
    place: str
    """Where it was named: `rewards[0]`, or the function's own name when it was given in Python."""
    function: Callable[..., Any]
    """Called with keywords only."""
    settings: Mapping[str, Any]
    """Fixed arguments by name."""
    takes: frozenset[str]
    """The names in `GIVEN` that it is called with, where they are known."""
    insists: frozenset[str]
    """Those of `takes` that it cannot be called without."""
    needed: Mapping[str, str]
    """Argument to data column, where it cannot be called without."""
    wanted: Mapping[str, str]
    """Argument to data column, where the argument has a default for data without that column."""
    takes_all: bool
    """True when it has `**kwargs` and so gets every column."""
    settings_only: frozenset[str]
    """Names that the data may not use for a column, since they are settings."""
    hidden: frozenset[str] = frozenset()
    """Columns that `**kwargs` does not get, since a setting that was left at its default has their name."""
    by_group: bool
    """True when it names `group_ids`, so that the rollouts of a group are not called apart."""
    on_failure: Literal["fail", "drop", "value"] = "fail"
    """What happens to a rollout that it fails on."""
    failure_value: float | None = None
    """What stands in under `value`."""
    from_python: bool = False
    """True when it was given as a Python function, not named in a configuration."""
    pool: WorkerPool | None = None
    """The processes that it runs in; None for this one."""

    @property
    def label(self) -> str:
        """Its name in records and metrics, unique within a run."""
        return self.term.label

    @property
    def weight(self) -> float:
        """Its factor in the sum."""
        return self.term.weight

    @property
    def workers(self) -> int:
        """How many calls run at a time."""
        return 1 if self.pool is None else self.pool.count

    def check_columns(self, columns: Collection[str], place: str) -> None:
        """See `Rewards.check_columns`."""
        clash = next((name for name in sorted(self.settings_only) if name in columns), None)
        if clash is not None:
            mapped = clash not in self.settings
            remedy = f" or, to read it, set {self.place}.columns: {{{clash}: {clash}}}" if mapped else ""
            raise DataError(
                f"{place}: the column {clash!r} has the name of a setting of the reward {self.label!r}; "
                f"rename the column{remedy}"
            )
        for argument, column in self.needed.items():
            if column not in columns:
                raise DataError(self._missing(argument, column, columns, place))

    def _missing(self, argument: str, column: str, columns: Collection[str], place: str) -> str:
        there = f"there are {', '.join(sorted(columns))}" if columns else "there are none beside the prompt"
        near = nearest(column, [*columns, *GIVEN])
        if near in GIVEN and near not in columns:
            remedy = f"; did you mean the argument {near!r}?"
        else:
            if not self.from_python:
                remedy = f"set {self.place}.columns: {{{argument}: {near or 'COLUMN'}}}"
            else:
                remedy = "rename the function's argument, or the column"
            guess = f"did you mean {near!r}? {remedy[0].upper()}{remedy[1:]}"
            remedy = f"; {guess if near else remedy}"
        return f"{place}: the reward {self.label!r} needs the column {column!r}, but {there}{remedy}"

    def arguments(self, given: Mapping[str, Any], columns: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """The keywords of one call.

        Args:
            given: values for the names in `GIVEN`; those that are not known are left out.
            columns: per data column, one value per rollout.

        Raises:
            DataError: a needed column is not there, a setting has a column's name, or it insists on what is not
                known here.
        """
        self.check_columns(columns, "the data")
        arguments = {
            name: list(values)
            for name, values in columns.items()
            if self.takes_all and name not in GIVEN and name not in self.hidden
        }
        for argument, column in {**self.wanted, **self.needed}.items():
            if column in columns:
                arguments[argument] = list(columns[column])
        for name in self.takes:
            if name in given:
                arguments[name] = given[name]
            elif name in self.insists:
                raise DataError(
                    f"the reward {self.label!r} needs {name}, which rollouts have but these rows have not; add a "
                    f"column {name!r} to every row, or give the argument a default"
                )
        arguments.update(self.settings)
        return arguments


def read_function(
    function: Callable[..., Any],
    *,
    place: str,
    settings: Mapping[str, Any],
    columns: Mapping[str, str],
    from_python: bool = False,
    built_in: bool = False,
) -> dict[str, Any]:
    """The fields of `RewardFunction` that follow from a function's signature.

    Keyword-only arguments with defaults are settings, and every other argument that is not in `GIVEN` is a data
    column. A function given in Python need have no settings beside it, so there a keyword-only argument that is not
    set is a column where the data has one of that name.

    Args:
        function: the function as its user wrote it.
        place: where it was named, for errors.
        settings: those given for it, already checked.
        columns: argument to column, where these differ.
        from_python: it was given as an object, not named in a configuration.
        built_in: it is one of ours, whose unused settings do not stand in the way of a column's name.

    Raises:
        ConfigError: it cannot be called with keywords, or `settings` or `columns` name what it does not have.
    """
    if inspect.isclass(function):
        raise ConfigError(
            f"{place}: {function.__name__} is a class; give an instance with __call__, or a function"
        )
    try:
        stated = _parameters(function)
    except (TypeError, ValueError):
        raise ConfigError(
            f"{place}: the arguments of {name_of(function)} cannot be read; wrap it in a Python function"
        ) from None
    takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in stated.values())
    named = {
        name: p
        for name, p in stated.items()
        if p.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    }
    for name, parameter in named.items():
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY and parameter.default is _EMPTY:
            raise ConfigError(
                f"{place}: {name_of(function)} takes {name!r} by position only, but rewards are called with keywords; "
                "remove the / from its arguments"
            )
    named = {name: p for name, p in named.items() if p.kind is not inspect.Parameter.POSITIONAL_ONLY}
    by_position = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in stated.values())
    if not takes_all and "completions" not in named and (by_position or not named):
        raise ConfigError(_without_keywords(function, place, by_position))
    _check_mapping(function, named, takes_all, settings, columns, place)
    fixed = set(settings) | _bound(function)  # what a functools.partial fixed, it passes itself
    takes = frozenset(n for n in GIVEN if n in named or (takes_all and n != "group_ids")) - fixed
    needed, wanted, defaults = dict(columns), {}, set()
    for name, parameter in named.items():
        if name in GIVEN or name in fixed or name in columns:
            continue
        if parameter.default is _EMPTY:
            needed[name] = name
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY and not from_python:
            defaults.add(name)
        else:
            wanted[name] = name
    return {
        "function": function,
        "settings": dict(settings),
        "takes": takes,
        "insists": frozenset(name for name in takes if name in named and named[name].default is _EMPTY),
        "needed": needed,
        "wanted": wanted,
        "takes_all": takes_all,
        "settings_only": frozenset((fixed if built_in else fixed | defaults) - set(columns)),
        "hidden": frozenset(defaults - set(columns)),
        "by_group": "group_ids" in named,
    }


def _without_keywords(function: Callable[..., Any], place: str, by_position: bool) -> str:
    what = "takes its arguments by position" if by_position else "takes no arguments"
    return (
        f"{place}: {name_of(function)} {what}, but rewards are called with keywords; write "
        f"def {name_of(function)}(completions, **columns)"
    )


def _check_mapping(
    function: Callable[..., Any],
    named: Mapping[str, inspect.Parameter],
    takes_all: bool,
    settings: Mapping[str, Any],
    columns: Mapping[str, str],
    place: str,
) -> None:
    for argument in columns:
        if argument in GIVEN:
            raise ConfigError(
                f"{place}.columns: {argument!r} comes from the rollouts, not from a column; remove it"
            )
        if argument in settings:
            raise ConfigError(f"{place}: {argument!r} is given in settings and in columns; keep one")
        if argument not in named and not takes_all:
            near = nearest(argument, named)
            hint = f"did you mean {near!r}?" if near else f"it has {', '.join(named) or 'none'}"
            raise ConfigError(f"{place}.columns: {name_of(function)} has no argument {argument!r}; {hint}")


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters as their author wrote them. `inspect.signature` of a partial calls whatever follows a bound
    argument keyword-only, which would make settings of data columns.
    """
    if not isinstance(function, functools.partial):
        return dict(inspect.signature(function).parameters)
    parameters = _parameters(function.func)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for name in [n for n, p in parameters.items() if p.kind in positional][: len(function.args)]:
        del parameters[name]
    for name, value in function.keywords.items():
        parameters[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value)
    return parameters


def _bound(function: Callable[..., Any]) -> set[str]:
    """The names that a functools.partial, or a partial of one, fixes by keyword."""
    names: set[str] = set()
    while isinstance(function, functools.partial):
        names |= set(function.keywords)
        function = function.func
    return names
