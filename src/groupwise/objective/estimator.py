"""Calls an advantage estimator: the names of its positional arguments say what it takes, their axes over what.

`rewards_G` is one number per rollout of a group, so the function is called once per group; `rewards_N` one per rollout
of the batch, `rewards_NT` one per trained token of each, so it is called once per batch. What it returns has one number
per rollout, or an array of one per token for each. Nothing else is asked of an estimator, and nothing that calls it
needs its name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import ConfigError, GroupwiseError, raised
from groupwise.objective.spread import zero_spread
from groupwise.registry import bind, name_of, nearest, place_of
from groupwise.registry import settings as settings_of

Array = NDArray[np.float64]
Ragged = tuple[Array, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """What an estimator may ask for, of N rollouts, group after group. T counts a rollout's trained tokens alone."""

    rewards_N: Array
    """Total reward of each, with the KL penalty where there is one in the reward."""
    rewards_NT: Ragged
    """The same by token: each reward where it was earned (the last token if it is one number), KL penalties at each."""
    task_rewards_N: Array
    """Total reward of each without any penalty; what decides whether rewards are equal."""
    task_rewards_NT: Ragged
    """The same by token."""
    groups_N: NDArray[np.int64]
    """Number of the group of each, ascending."""
    lengths_N: NDArray[np.int64]
    """Trained tokens of each."""
    values_NT: Ragged | None = None
    """What a critic expects at each token, in units of reward; None without a critic."""
    greedy_rewards_N: Array | None = None
    """Reward of the greedy rollout of the same prompt; None when none was sampled."""


ASKED = {
    "rewards": ("G", "N", "NT"),
    "task_rewards": ("G", "N"),
    "lengths": ("G", "N"),
    "groups": ("N",),
    "values": ("NT",),
    "greedy_rewards": ("G", "N"),
}
"""What an argument may be called, and the axes that it may be asked over."""


class Estimator:
    """An advantage estimator with its settings, ready to be handed the evidence of a batch.

    Attributes:
        asks: its arguments, such as `rewards_G`, in order.
        needs: what it asks for beside rewards, lengths and groups, such as `values`, which need a critic.
        by_group: it sees one group at a time.
        by_token: its rewards are given by token.
        keeps_unit: its advantages are in units of reward, so that what is small stays small.
        compares: it compares the rollouts of a group with each other, so that a group needs two.
    """

    def __init__(self, function: Callable[..., Any], settings: Mapping[str, Any] | None = None) -> None:
        """Read what the function asks for.

        Args:
            function: positional arguments as in `ASKED`; a first one of any other name is taken for `rewards_G`.
            settings: its keyword-only arguments.

        Raises:
            ConfigError: an argument asks for what there is not, or some are of a group and some of the batch.
        """
        self.function = bind(function, settings or {})
        self.name = name_of(function)
        place = place_of(function)
        self._called, self._own = f"the advantage {self.name}{place}", place != ""
        self._asked = _asked(function, self._called)
        self.asks = tuple(f"{stem}_{axes}" for stem, axes in self._asked)
        stems = {stem for stem, _ in self._asked}
        self.needs = frozenset(stems & {"values", "greedy_rewards"})
        self.by_group = self._asked[0][1] == "G"
        self.by_token = self._asked[0][1] == "NT"
        self.compares = (self.by_group or "groups" in stems) and "greedy_rewards" not in stems
        module = getattr(function, "__globals__", {})
        self.keeps_unit = bool(module.get("IN_REWARD_UNITS", False))
        self._value_targets: Callable[..., Any] | None = None
        if "values" in self.needs and callable(learned := module.get("value_targets")):
            shared = {key: value for key, value in (settings or {}).items() if key in settings_of(learned)}
            self._value_targets = bind(learned, shared)

    def __call__(self, evidence: Evidence) -> Ragged:
        """The advantage of each trained token, shape [T] for each of N rollouts.

        With a KL penalty in the reward, and task rewards that are all equal (within the group, or within the batch for
        an estimator that sees it whole), the advantage is exactly 0: scaled to unit spread, the penalty alone would be
        noise. A module that says `IN_REWARD_UNITS = True` does not scale; there the penalty acts as it should.

        Raises:
            ValueError: it failed, or gave something other than one finite number per rollout or per token.
            ConfigError: it asks for what this run does not have.
        """
        N = len(evidence.rewards_N)
        parts = [np.arange(N)]
        if self.by_group:
            parts = [np.flatnonzero(evidence.groups_N == group) for group in np.unique(evidence.groups_N)]
        found: list[Array] = [np.zeros(0)] * N
        for members in parts:
            for i, advantages_T in zip(members, self._of(evidence, members), strict=True):
                found[i] = advantages_T
        return tuple(found)

    def targets(self, evidence: Evidence) -> Ragged:
        """What a critic is to learn at each trained token, shape [T] for each of N rollouts, in units of reward.

        By the function `value_targets` beside the estimator, which takes rewards and values by token and those of the
        estimator's settings that it names; without one, the sum of the rewards at and after the token.

        Raises:
            ValueError: it gave something other than one finite number per token.
        """
        assert evidence.values_NT is not None, "targets are of a critic, whose values are there"
        if self._value_targets is None:
            given: Any = [np.cumsum(rewards_T[::-1])[::-1] for rewards_T in evidence.rewards_NT]
        else:
            given = self._returned(self._value_targets, evidence.rewards_NT, evidence.values_NT)
        return _by_token(given, evidence.lengths_N, f"value_targets of {self._called}")

    def _of(self, evidence: Evidence, members: NDArray[np.int64]) -> Ragged:
        lengths = evidence.lengths_N[members]
        task = evidence.task_rewards_N[members]
        penalised = not np.array_equal(task, evidence.rewards_N[members])
        if penalised and not self.keeps_unit and not self.needs and zero_spread(task):
            return tuple(np.zeros(length) for length in lengths)
        given = [
            _taken(evidence, f"{stem}_{'NT' if axes == 'NT' else 'N'}", members) for stem, axes in self._asked
        ]
        for (stem, _), value in zip(self._asked, given, strict=True):
            if value is None:
                raise ConfigError(
                    f"the advantage {self.name} asks for {stem}, which this run does not compute"
                )
        try:
            return _by_token(self._returned(self.function, *given), lengths, self._called)
        except ValueError as error:
            shown = np.array2string(evidence.rewards_N[members], threshold=16, precision=4)
            raise ValueError(f"{error} (rewards {' '.join(shown.split())})") from error

    def _returned(self, function: Callable[..., Any], *given: Any) -> Any:
        """What the function gives; where one of somebody's own fails, a sentence that names it."""
        try:
            return function(*given)
        except GroupwiseError:
            raise
        except Exception as error:
            if not self._own:
                raise
            raise ValueError(f"{self._called} failed: {raised(error)}") from error


def _asked(function: Callable[..., Any], who: str) -> list[tuple[str, str]]:
    """(stem, axes) of each positional argument."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in inspect.signature(function).parameters.values() if p.kind in kinds]
    if not names:
        raise ConfigError(f"{who} takes no rewards; its first argument is rewards_G")
    asked = [(stem, axes) for stem, _, axes in (argument.rpartition("_") for argument in names)]
    if asked[0][0] in ASKED and asked[0][0] != "rewards":
        raise ConfigError(f"{who} asks for {names[0]} first; rewards come first")
    if asked[0][0] != "rewards":
        asked[0] = ("rewards", "G")
    parameters = inspect.signature(function).parameters
    for argument, (stem, axes) in zip(names, asked, strict=True):
        if axes not in ASKED.get(stem, ()) and parameters[argument].default is not inspect.Parameter.empty:
            raise ConfigError(f"{who}: settings, such as {argument}, stand behind a * in its signature")
        if axes not in ASKED.get(stem, ()):
            known = ", ".join(f"{known}_{axes}" for known, choices in ASKED.items() for axes in choices)
            near = nearest(argument, known.split(", "))
            hint = f"did you mean {near}? there are" if near else "there are"
            raise ConfigError(f"{who} asks for {argument!r}; {hint} {known}")
        if (axes == "G") != (asked[0][1] == "G"):
            raise ConfigError(
                f"{who} asks for {names[0]!r} and {argument!r}; all arguments are of one group (G), or "
                "all are of the whole batch (N)"
            )
    return asked


def _taken(evidence: Evidence, field: str, members: NDArray[np.int64]) -> Any:
    value = getattr(evidence, field)
    if isinstance(value, tuple):
        return tuple(value[i] for i in members)
    return None if value is None else value[members]


def _by_token(given: Any, lengths: NDArray[np.int64], who: str) -> Ragged:
    """What an estimator returned as one array per rollout."""
    count = len(lengths)
    if given is None:
        raise ValueError(f"{who} returned nothing for {count} rollouts; it returns one number for each")
    try:
        rows: Any = given if isinstance(given, list | tuple) else np.asarray(given, dtype=np.float64)
        alone = isinstance(rows, np.ndarray) and rows.ndim == 0
        numbers = [] if alone else [np.asarray(row, dtype=np.float64) for row in rows]
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        said = f"a {type(given).__name__} that is not all numbers ({raised(error)})"
        raise ValueError(f"{who} gave {said}; it gives one number for each of {count} rollouts") from None
    if alone:
        raise ValueError(f"{who} gave the one number {rows:g} for {count} rollouts; it gives one for each")
    if len(numbers) != count or (count and numbers[0].ndim > 1):
        raise ValueError(f"{who} gave {len(numbers)} entries for {count} rollouts; it gives one for each")
    found = []
    for row, advantages_T, length in zip(rows, numbers, lengths, strict=True):
        if advantages_T.ndim == 0:
            advantages_T = np.full(length, float(advantages_T))
        if advantages_T.shape != (length,) or not np.isfinite(advantages_T).all():
            raise ValueError(
                f"{who} gave {row} for a rollout of {length} trained tokens; it gives one finite number "
                "for each rollout, or for each of its trained tokens"
            )
        found.append(advantages_T)
    return tuple(found)
