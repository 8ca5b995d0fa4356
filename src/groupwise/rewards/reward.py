"""Rewards as a run uses them: built from the configuration and from functions, then asked about rollouts."""

from __future__ import annotations

import functools
import inspect
import logging
import math
import numbers
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise import registry
from groupwise.config.choice import check_settings
from groupwise.config.rewards import SCORERS, RewardConfig, fault_of_label
from groupwise.errors import CheckpointError, ConfigError, DataError, RewardError, raised
from groupwise.records import Prompt, Rollout, Verdict
from groupwise.rewards.calling import Outcome, call_all
from groupwise.rewards.combine import Part, combine
from groupwise.rewards.completions import text_of
from groupwise.rewards.function import GIVEN, RewardFunction, read_function
from groupwise.rewards.values import Unusable, as_list, as_value

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerState:
    """What a reward that names `trainer_state` gets; TRL spells its fields so."""

    global_step: int
    """Steps finished before the batch that is scored."""
    max_steps: int | None
    """Steps of the whole run; None where there is no such number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What rewards are asked about, without the records around it. All sequences are of length N."""

    prompts: Sequence[Any]
    """Text, or a list of messages, each."""
    completions: Sequence[Any]
    """Text, or a list with the assistant's message, each."""
    completion_ids: Sequence[Sequence[int]] | None
    """Token ids, each, the stop token included; None where they are not known."""
    stop_reasons: Sequence[str] | None
    """`stop` or `length`, each; None where they are not known."""
    columns: Mapping[str, Sequence[Any]]
    """Per data column, one value per rollout."""


class _Notes:
    """What one call logged; kept only if the call succeeds."""

    def __init__(self) -> None:
        self.metrics: list[tuple[str, float]] = []
        self.extra_columns: list[str] = []

    def log_metric(self, name: str, value: Any) -> None:
        self.metrics.append((str(name), float(value)))

    def log_extra(self, column: str, values: Sequence[Any]) -> None:
        self.extra_columns.append(str(column))


class Rewards:
    """The rewards of a run. Make it with `build`.

    Two callables of TRL are handed to functions that name them. What is given to `log_metric(name, value)` is kept
    until `take_logged`, and a run records its mean as `reward/logged/{name}`. `log_extra(column, values)` may be
    called and keeps nothing, which is said once: TRL shows such columns in its table of completions, and the records
    have no place for them.

    Attributes:
        labels: one unique readable name per reward, in order.
        weighted: (label, weight) of each, in order.
        from_python: the labels of those that were given as Python functions.
        needs: label to the data columns that the reward cannot do without.
        failures: label to the number of rollouts it has failed on so far.
    """

    def __init__(self, functions: Sequence[RewardFunction]) -> None:
        self._functions = tuple(functions)
        self.labels: tuple[str, ...] = tuple(f.label for f in functions)
        self.weighted: tuple[tuple[str, float], ...] = tuple((f.label, f.weight) for f in functions)
        self.from_python: tuple[str, ...] = tuple(f.label for f in functions if f.from_python)
        self.needs: dict[str, tuple[str, ...]] = {f.label: tuple(f.needed.values()) for f in functions}
        self.failures: dict[str, int] = dict.fromkeys(self.labels, 0)
        self._logged: dict[str, list[float]] = {}
        self._has_worked: set[str] = set()
        self._told_of_extras = False

    def state(self) -> dict[str, Any]:
        """What decides later scores: failures, who has worked, and the state of rewards that have one.

        A reward that is an object with the methods `state` and `restore` (see `checkpoint.state.Stateful`) is resumed
        with the run.
        """
        own = {label: dict(function.state()) for label, function in self._with_memory()}
        return {"failures": dict(self.failures), "has_worked": sorted(self._has_worked), "own": own}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `checkpoint.state.Stateful`.

        Raises:
            CheckpointError: the state is of other rewards.
        """
        if list(state["failures"]) != list(self.labels):
            raise CheckpointError(
                f"the checkpoint is of a run with the rewards {', '.join(state['failures'])}, but this one has "
                f"{', '.join(self.labels)}; resume with the same"
            )
        self.failures = dict(state["failures"])
        self._has_worked = set(state["has_worked"])
        for label, function in self._with_memory():
            function.restore(state["own"][label])

    def _with_memory(self) -> Iterator[tuple[str, Any]]:
        for each in self._functions:
            function: Any = each.function
            if all(callable(getattr(function, name, None)) for name in ("state", "restore")):
                yield each.label, function

    def check_columns(self, columns: Collection[str], place: str) -> None:
        """Check the names of the data's columns, before any model is loaded.

        Args:
            columns: the names that `Prompt.columns` will have.
            place: the file or source, for the error.

        Raises:
            DataError: a reward needs a column that is not there, or a column has the name of one of its settings.
        """
        for function in self._functions:
            function.check_columns(columns, place)

    def check_rows(self, rows: Sequence[tuple[str, Collection[str]]], source: str) -> None:
        """As `check_columns`, for rows that may differ in their columns.

        Args:
            rows: the place of each row, for the error, and the names of its columns.
            source: the file or source of all of them.

        Raises:
            DataError: as `check_columns` where no row has the column; else names the first row that lacks it.
        """
        self.check_columns({name for _, columns in rows for name in columns}, source)
        for label, needed in self.needs.items():
            for column in needed:
                place = next((place for place, columns in rows if column not in columns), None)
                if place is not None:
                    raise DataError(
                        f"{place}: the reward {label!r} needs the column {column!r}, which other rows have; add it to "
                        "this row, with null if there is nothing to say"
                    )

    def score(
        self,
        prompts: Sequence[Prompt],
        rollouts: Sequence[Rollout],
        *,
        step: int = 0,
        max_steps: int | None = None,
    ) -> list[Verdict]:
        """Judge rollouts, those of many groups at once.

        Args:
            prompts: the prompt of each rollout, in the same order, repeated as often as it was answered.
            rollouts: in any mix of groups.
            step: steps finished so far, for `trainer_state`.
            max_steps: steps of the run, for `trainer_state`.

        Returns:
            One verdict per rollout, in order.

        Raises:
            RewardError: a reward failed and its policy is `fail`; it failed on every rollout; it returned something
                other than one value per rollout.
            DataError: a column that a reward needs is not there.
            ValueError: prompts and rollouts do not belong together.
        """
        for i, (prompt, rollout) in enumerate(zip(prompts, rollouts, strict=True)):
            if prompt.id != rollout.prompt_id:
                raise ValueError(
                    f"rollout {i} is of prompt {rollout.prompt_id}, but prompt {i} is {prompt.id}"
                )
        names = dict.fromkeys(name for prompt in prompts for name in prompt.columns)
        batch = Batch(
            prompts=[p.text if p.messages is None else p.messages for p in prompts],
            completions=[
                r.text if p.messages is None else [{"role": "assistant", "content": r.text}]
                for p, r in zip(prompts, rollouts, strict=True)
            ],
            completion_ids=[r.token_ids_T.tolist() for r in rollouts],
            stop_reasons=[r.stop_reason.value for r in rollouts],
            columns={name: [p.columns.get(name) for p in prompts] for name in names},
        )
        return self.score_batch(batch, step=step, max_steps=max_steps)

    def score_batch(self, batch: Batch, *, step: int = 0, max_steps: int | None = None) -> list[Verdict]:
        """As `score`, for texts without the records around them.

        Raises:
            RewardError, DataError: as `score`.
        """
        count = len(batch.completions)
        if count == 0:
            return []
        state = TrainerState(global_step=step, max_steps=max_steps)
        everything = range(count)
        notes = [_Notes() for _ in self._functions]
        calls = [
            _prepare(f, batch, everything, state, n) for f, n in zip(self._functions, notes, strict=True)
        ]
        parts = []
        for function, outcome, note in zip(self._functions, call_all(calls), notes, strict=True):
            parts.append(self._settle(function, outcome, note, batch, state))
        weights = [f.weight for f in self._functions]
        return [combine(self.labels, weights, [of_one[i] for of_one in parts]) for i in everything]

    def _settle(
        self, function: RewardFunction, outcome: Outcome, notes: _Notes, batch: Batch, state: TrainerState
    ) -> list[Part]:
        """One part per rollout from what one function returned or raised."""
        count = len(batch.completions)
        errors: dict[int, Exception] = {}
        if outcome.error is None:
            who = f"the reward {function.label!r}"
            values = [as_value(v) for v in as_list(outcome.value, count, who=who)]
            self._keep(function, notes)
        else:
            values, errors = self._one_by_one(function, outcome.error, batch, state)
        failed = {i: value.reason for i, value in enumerate(values) if isinstance(value, Unusable)}
        if failed:
            self._report(function, failed, errors, batch)
        if len(failed) < count:
            self._has_worked.add(function.label)
        return [
            Part(failure=_sentence(function, i, failed[i], batch), stand_in=function.failure_value)
            if isinstance(value, Unusable)
            else Part(value=value)
            for i, value in enumerate(values)
        ]

    def _one_by_one(
        self, function: RewardFunction, error: Exception, batch: Batch, state: TrainerState
    ) -> tuple[list[float | Unusable | None], dict[int, Exception]]:
        """Call again for each rollout alone, so that only those fail that a function fails on."""
        count = len(batch.completions)
        if count == 1:
            return [Unusable(raised(error))], {0: error}
        notes = [_Notes() for _ in range(count)]
        calls = [_prepare(function, batch, [i], state, notes[i]) for i in range(count)]
        if function.on_failure == "fail":
            outcomes = []  # the first to fail ends the run, so the rest need not be asked
            for call in calls:
                outcomes += call_all([call])
                if outcomes[-1].error is not None:
                    break
            else:
                raise RewardError(
                    f"the reward {function.label!r} failed on a batch of {count} rollouts, but on none of them alone: "
                    f"{raised(error)}"
                ) from error
        else:
            outcomes = call_all(calls)
            if all(outcome.error is None for outcome in outcomes):
                _log.warning(
                    "the reward %r failed on a batch of %d rollouts and then on none of them alone: %s",
                    function.label,
                    count,
                    raised(error),
                )
        values: list[float | Unusable | None] = [None] * count
        errors: dict[int, Exception] = {}
        for i, outcome in enumerate(outcomes):
            if outcome.error is not None:
                errors[i] = outcome.error
                values[i] = Unusable(raised(outcome.error))
            else:
                values[i] = as_value(as_list(outcome.value, 1, who=f"the reward {function.label!r}")[0])
                self._keep(function, notes[i])
        return values, errors

    def _report(
        self,
        function: RewardFunction,
        failed: Mapping[int, str],
        errors: Mapping[int, Exception],
        batch: Batch,
    ) -> None:
        """Count failures, and end the run where the policy or their number says so."""
        count = len(batch.completions)
        self.failures[function.label] += len(failed)
        first = min(failed)
        sentence = _sentence(function, first, failed[first], batch)
        if function.on_failure == "fail":
            remedy = "mend it"
            if not function.from_python:
                remedy += (
                    f", or set {function.place}.on_failure to drop or value to go on without such rollouts"
                )
            raise RewardError(f"{sentence}; {remedy}") from errors.get(first)
        # A batch of one says little: a function that has worked before may go on.
        if len(failed) == count and (count > 1 or function.label not in self._has_worked):
            raise RewardError(
                f"the reward {function.label!r} failed on every rollout of a batch of {count}, so on_failure: "
                f"{function.on_failure} cannot go on; the first: {sentence}"
            ) from errors.get(first)
        _log.warning("%s (%d of %d rollouts of this batch failed)", sentence, len(failed), count)

    def take_logged(self) -> dict[str, list[float]]:
        """What the functions gave to `log_metric` since this was last called, by name, in the order of the calls."""
        logged, self._logged = self._logged, {}
        return logged

    def _keep(self, function: RewardFunction, notes: _Notes) -> None:
        for name, number in notes.metrics:
            self._logged.setdefault(name, []).append(number)
        if notes.extra_columns and not self._told_of_extras:
            self._told_of_extras = True
            _log.warning(
                "the reward %r gives the column %r to log_extra, which is not recorded; give numbers to log_metric",
                function.label,
                notes.extra_columns[0],
            )


def _prepare(
    function: RewardFunction, batch: Batch, rows: Sequence[int], state: TrainerState, notes: _Notes
) -> Callable[[], Any]:
    """The call for some rows. Lists and messages are new for each call, so that no reward can change another's."""
    given: dict[str, Any] = {
        "prompts": [_fresh(batch.prompts[i]) for i in rows],
        "completions": [_fresh(batch.completions[i]) for i in rows],
        "trainer_state": state,
        "log_metric": notes.log_metric,
        "log_extra": notes.log_extra,
    }
    if batch.completion_ids is not None:
        given["completion_ids"] = [list(batch.completion_ids[i]) for i in rows]
    if batch.stop_reasons is not None:
        given["stop_reasons"] = [batch.stop_reasons[i] for i in rows]
    columns = {name: [values[i] for i in rows] for name, values in batch.columns.items()}
    return functools.partial(function.function, **function.arguments(given, columns))


def _fresh(text_or_messages: Any) -> Any:
    if isinstance(text_or_messages, str):
        return text_or_messages
    return [dict(message) for message in text_or_messages]


def _sentence(function: RewardFunction, i: int, reason: str, batch: Batch) -> str:
    start = text_of(batch.completions[i])[:80]
    return f"the reward {function.label!r} failed on rollout {i} (completion {start!r}): {reason}"


def build(
    configs: Sequence[RewardConfig],
    *,
    base: Path,
    functions: Sequence[Callable[..., Any] | tuple[Callable[..., Any], float]] = (),
) -> Rewards:
    """Find the rewards, check their settings and read what data columns they need.

    Args:
        configs: those that the configuration names.
        base: folder that `file.py:function` and modules are looked up from.
        functions: further rewards as Python functions, of weight 1, or as pairs (function, weight).

    Raises:
        ConfigError: no such function, a setting it does not have, weights that teach nothing; says which reward.
            That labels differ is checked with the configuration.
    """
    fields = [_from_config(i, config, base) for i, config in enumerate(configs)]
    fields += [_from_python(i, item) for i, item in enumerate(functions)]
    if not fields:
        raise ConfigError("there is no reward, so there is nothing to learn from; name one under rewards")
    if all(field["weight"] == 0 for field in fields):
        raise ConfigError("the weight of every reward is 0, so there is nothing to learn from")
    _label(fields)
    return Rewards([RewardFunction(**field) for field in fields])


def _from_config(i: int, config: RewardConfig, base: Path) -> dict[str, Any]:
    place = f"rewards[{i}]"
    built_in = ":" not in config.name
    try:
        function = registry.find(SCORERS, config.name, base=base)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error.__cause__
    # Read first without settings: it refuses what cannot be called at all.
    read_function(function, place=place, settings={}, columns={}, built_in=built_in)
    settings = _settings(function, config.settings, f"{place}.settings")
    fields = read_function(
        function, place=place, settings=settings, columns=config.columns, built_in=built_in
    )
    if built_in:
        try:
            none: dict[str, list[Any]] = {
                key: [] for key in ("completions", *fields["insists"], *fields["needed"])
            }
            function(**none, **settings)
        except (
            ValueError,
            TypeError,
        ) as error:  # settings that do not fit together are found on no rollouts too
            raise ConfigError(f"{place} ({config.name}): {error}") from None
    return fields | {
        "label": config.label,
        "place": place,
        "weight": config.weight,
        "on_failure": config.on_failure,
        "failure_value": config.failure_value,
    }


def _settings(function: Callable[..., Any], given: Mapping[str, Any], place: str) -> dict[str, Any]:
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
    return {key: checked[key] for key in given}


def _from_python(i: int, item: Any) -> dict[str, Any]:
    function, weight = item, 1.0
    if isinstance(item, tuple | list):
        if len(item) != 2:
            raise ConfigError(
                f"reward function {i}: a pair is (function, weight), but this has {len(item)} items"
            )
        function, weight = item
    if not _finite(weight):
        raise ConfigError(f"reward function {i}: the weight {weight!r:.60} is not a finite number")
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
    fields = read_function(function, place=place, settings={}, columns={}, from_python=True)
    return fields | {"label": None, "place": place, "weight": float(weight), "from_python": True}


def _finite(weight: Any) -> bool:
    """True for Python's and numpy's numbers that a float can hold."""
    try:
        return (
            isinstance(weight, numbers.Real) and not isinstance(weight, bool) and math.isfinite(float(weight))
        )
    except OverflowError:
        return False


def _label(fields: Sequence[dict[str, Any]]) -> None:
    """Fill in the labels that were not given: the function's name, with a number where it is taken."""
    taken = {field["label"] for field in fields if field["label"] is not None}
    for field in fields:
        if field["label"] is None:
            name = registry.name_of(field["function"]).strip("<>")
            fault = fault_of_label(name)
            if fault is not None:
                raise ConfigError(f"{field['place']}: its name {fault}; give it another __name__")
            label, number = name, 2
            while label in taken:
                label, number = f"{name}_{number}", number + 1
            taken.add(label)
            field["label"] = label
