"""Rewards as a run uses them: asked about rollouts, combined, counted. `setup` makes them."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from groupwise.errors import CheckpointError, DataError, RewardError
from groupwise.records import Prompt, Rollout, Verdict
from groupwise.rewards.batch import Batch, TrainerState
from groupwise.rewards.calling import Notes
from groupwise.rewards.combine import Combined, Part, combine
from groupwise.rewards.completions import text_of
from groupwise.rewards.dense import Decode, Dense, token_rewards
from groupwise.rewards.function import RewardFunction
from groupwise.rewards.isolation import Asked, ask_all
from groupwise.rewards.normalise import Statistics
from groupwise.rewards.values import Unusable

__all__ = ["Batch", "Rewards", "Taken", "TrainerState"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What is to be logged of the batches that were scored since it was last taken."""

    means: Mapping[str, Sequence[float]]
    """Name of a metric to the values that it is the mean of."""
    totals: Mapping[str, float]
    """Name of a metric to its sum."""


class Rewards:
    """The rewards of a run. Make it with `build`.

    Two callables of TRL are handed to functions that name them. What is given to `log_metric(name, value)` is kept
    until `take_metrics`, and a run records its mean as `reward/logged/{name}`. `log_extra(column, values)` may be
    called and keeps nothing, which is said once: TRL shows such columns in its table of completions, and the records
    have no place for them.

    Attributes:
        labels: one unique readable name per reward, in order.
        weighted: (label, weight) of each, in order.
        formulas: what each adds to the total, in words; those that are only watched are left out.
        from_python: the labels of those that were given as Python functions.
        needs: label to the data columns that the reward cannot do without.
        by_group: the labels of those that compare the rollouts of a group with each other.
        failures: label to the number of rollouts it has failed on so far.
        decode: token ids to text, as the engine writes it; set once a model is loaded. Only rewards that give spans of
            characters need it.
    """

    def __init__(self, functions: Sequence[RewardFunction]) -> None:
        self._functions = tuple(functions)
        self._terms = tuple(f.term for f in functions)
        self.labels: tuple[str, ...] = tuple(f.label for f in functions)
        self.weighted: tuple[tuple[str, float], ...] = tuple((f.label, f.weight) for f in functions)
        self.formulas: tuple[str, ...] = tuple(t.formula() for t in self._terms if t.weight != 0)
        self.from_python: tuple[str, ...] = tuple(f.label for f in functions if f.from_python)
        self.needs: dict[str, tuple[str, ...]] = {f.label: tuple(f.needed.values()) for f in functions}
        self.by_group: tuple[str, ...] = tuple(f.label for f in functions if f.by_group)
        self.failures: dict[str, int] = dict.fromkeys(self.labels, 0)
        self._means: dict[str, list[float]] = {}
        self._totals: dict[str, float] = {}
        self._logged: dict[str, list[float]] = {}
        self._has_worked: set[str] = set()
        self._statistics = Statistics()
        self._told_of_extras = False
        self.decode: Decode | None = None

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
        training: bool = False,
    ) -> list[Verdict]:
        """Judge rollouts, those of many groups at once.

        Args:
            prompts: the prompt of each rollout, in the same order, repeated as often as it was answered.
            rollouts: in any mix of groups.
            step: steps finished so far, for `trainer_state` and schedules.
            max_steps: steps of the run, for `trainer_state`.
            training: the rewards are to be turned into advantages, so those that ask for it are normalised, and what
                they remember of earlier steps moves on. Elsewhere, as in evaluation, a reward is the weighted sum of
                the values as they are, so that it means the same on any set of rollouts.

        Returns:
            One verdict per rollout, in order.

        Raises:
            RewardError: a reward failed and its policy is `fail`; it failed on every rollout; it returned something
                other than one value per rollout.
            DataError: a column that a reward needs is not there.
            ValueError: prompts and rollouts do not belong together.
        """
        group_ids: list[str] = []
        seen: dict[tuple[str, int], int] = {}
        for i, (prompt, rollout) in enumerate(zip(prompts, rollouts, strict=True)):
            if prompt.id != rollout.prompt_id:
                raise ValueError(
                    f"rollout {i} is of prompt {rollout.prompt_id}, but prompt {i} is {prompt.id}"
                )
            # A prompt that is drawn twice in a step makes two groups, each with a rollout 0.
            place = (prompt.id, rollout.group_index)
            seen[place] = times = seen.get(place, 0) + 1
            group_ids.append(prompt.id if times == 1 else f"{prompt.id}#{times}")
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
            group_ids=group_ids,
            places=[p.id for p in prompts],
        )
        verdicts, parts = self._judged(batch, step=step, max_steps=max_steps, training=training)
        return [self._along(v, p, r, step) for v, p, r in zip(verdicts, parts, rollouts, strict=True)]

    def score_batch(
        self, batch: Batch, *, step: int = 0, max_steps: int | None = None, training: bool = False
    ) -> list[Verdict]:
        """As `score`, for texts without the records around them.

        Raises:
            RewardError, DataError: as `score`.
        """
        return self._judged(batch, step=step, max_steps=max_steps, training=training)[0]

    def _judged(
        self, batch: Batch, *, step: int, max_steps: int | None, training: bool
    ) -> tuple[list[Verdict], list[tuple[Part, ...]]]:
        """Verdicts, and what each reward said, per rollout."""
        if not batch.completions:
            return [], []
        state = TrainerState(global_step=step, max_steps=max_steps)
        groups = batch.groups()
        parts = []
        for asked, first in ask_all(self._functions, batch, groups, state):
            for rows, outcome in first:
                asked.take(rows, outcome)
            parts.append(self._settle(asked, batch))
        combined = combine(
            self._terms, parts, groups, step=step, statistics=self._statistics if training else None
        )
        self._measure(combined, step=step, training=training)
        return combined.verdicts, list(zip(*parts, strict=True))

    def _along(self, verdict: Verdict, parts: Sequence[Part], rollout: Rollout, step: int) -> Verdict:
        """The verdict with what was earned where, if a reward says so."""
        dense = {t.label: p.dense for t, p in zip(self._terms, parts, strict=True) if p.dense is not None}
        if not dense:
            return verdict
        for term in self._terms:
            if term.label in dense and term.normalise != "none":
                raise RewardError(
                    f"the reward {term.label!r} gives values along the response and is normalised over the "
                    f"{term.normalise}; take its normalise off, since the advantage normalises such values over the "
                    "group"
                )
        weights = {term.label: term.weight_at(step) for term in self._terms}
        return replace(verdict, token_rewards=token_rewards(verdict, dense, weights, rollout, self.decode))

    def _settle(self, asked: Asked, batch: Batch) -> list[Part]:
        """One part per rollout from what one function was found to say."""
        function = asked.function
        failed = {i: value.reason for i, value in enumerate(asked.values) if isinstance(value, Unusable)}
        self._add(f"time/reward/{function.label}_seconds", asked.seconds)
        self._add(f"reward/part/{function.label}/failed_count", len(failed))
        self.failures[function.label] += len(failed)
        for notes in asked.notes:
            self._keep(function, notes)
        if failed:
            self._report(asked, failed, batch)
        if len(failed) < len(asked.values):
            self._has_worked.add(function.label)
        return [
            Part(failure=_sentence(function, i, value.reason, batch), stand_in=function.failure_value)
            if isinstance(value, Unusable)
            else Part(value=value.total, dense=value)
            if isinstance(value, Dense)
            else Part(value=value)
            for i, value in enumerate(asked.values)
        ]

    def _report(self, asked: Asked, failed: Mapping[int, str], batch: Batch) -> None:
        """Tell of failures, and end the run where the policy or their number says so."""
        function, count = asked.function, len(asked.values)
        first = min(failed)
        sentence = _sentence(function, first, failed[first], batch)
        if function.on_failure == "fail":
            place = f"{function.place}.on_failure" if not function.from_python else "its on_failure"
            error = asked.errors.get(first)
            raise RewardError(
                f"{sentence}{_form_of(batch.completions[first], error)}; mend it, or set {place} to drop or value to "
                "go on without such rollouts"
            ) from error
        # A batch of one says little: a function that has worked before may go on. One that is only watched always may.
        hopeless = len(failed) == count and (count > 1 or function.label not in self._has_worked)
        if hopeless and function.weight != 0:
            raise RewardError(
                f"the reward {function.label!r} failed on every rollout of a batch of {count}, so on_failure: "
                f"{function.on_failure} cannot go on; the first: "
                f"{sentence}{_form_of(batch.completions[first], asked.errors.get(first))}"
            ) from asked.errors.get(first)
        _log.warning("%s (%d of %d rollouts of this batch failed)", sentence, len(failed), count)

    def _measure(self, combined: Combined, *, step: int, training: bool) -> None:
        """What the sum says beyond the verdicts themselves."""
        for term in self._terms:
            if term.schedule:
                self._means[f"reward/part/{term.label}/weight"] = [term.weight_at(step)]
            std = self._statistics.std(term) if training else None
            if std is not None:
                self._means[f"reward/part/{term.label}/running_std"] = [std]
            if term.weight == 0:
                correlation = _correlation(
                    [v.parts[term.label] for v in combined.verdicts], [v.reward for v in combined.verdicts]
                )
                if correlation is not None:
                    self._means.setdefault(f"reward/part/{term.label}/correlation", []).append(correlation)
        for label, closed in combined.gates_closed.items():
            self._means.setdefault(f"reward/part/{label}/gate_closed_fraction", []).extend(closed)
        if training and self.normalises:
            self._means.setdefault("reward/raw_mean", []).extend(x for x in combined.raw if x is not None)

    @property
    def normalises(self) -> bool:
        """True when a reward is normalised in training, so that totals there are not on the scale of its values."""
        return any(term.normalise != "none" for term in self._terms)

    def take_metrics(self) -> Taken:
        """What is to be logged of the batches since this was last called, by the names in docs/records.md."""
        means = {**self._means, **{f"reward/logged/{k}": v for k, v in self.take_logged().items()}}
        taken = Taken(means=means, totals=self._totals)
        self._means, self._totals = {}, {}
        return taken

    def take_logged(self) -> dict[str, list[float]]:
        """What the functions gave to `log_metric` since this was last called, by name, in the order of the calls."""
        logged, self._logged = self._logged, {}
        return logged

    def state(self) -> dict[str, Any]:
        """What a resumed run must know to go on as this one would: plain mappings, lists, texts and numbers.

        A reward that is an object with the methods `state` and `restore` (see `checkpoint.state.Stateful`) is saved
        with it.
        """
        return {
            "labels": list(self.labels),
            "failures": dict(self.failures),
            "has_worked": sorted(self._has_worked),
            "statistics": self._statistics.state(),
            "own": {label: dict(function.state()) for label, function in self._with_memory()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave.

        Raises:
            CheckpointError: it is of other rewards, or damaged.
        """
        labels = list(state.get("labels", ()))
        if labels != list(self.labels):
            raise CheckpointError(
                f"the checkpoint is of the rewards {', '.join(map(str, labels)) or 'none'}, but this run has "
                f"{', '.join(self.labels)}; start from the configuration that it was written by"
            )
        try:
            self.failures = {label: int(state["failures"][label]) for label in self.labels}
            self._has_worked = set(state["has_worked"])
            self._statistics.restore(state["statistics"])
            for label, function in self._with_memory():
                function.restore(state["own"][label])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the saved state of the rewards is damaged: {error!r}") from None

    def close(self) -> None:
        """End the worker processes; they are started again when they are needed."""
        for function in self._functions:
            if function.pool is not None:
                function.pool.close()

    def _with_memory(self) -> Iterator[tuple[str, Any]]:
        for each in self._functions:
            function: Any = each.function
            if all(callable(getattr(function, name, None)) for name in ("state", "restore")):
                yield each.label, function

    def _add(self, name: str, number: float) -> None:
        self._totals[name] = self._totals.get(name, 0.0) + number

    def _keep(self, function: RewardFunction, notes: Notes) -> None:
        for name, number in notes.metrics:
            self._logged.setdefault(name, []).append(number)
        if notes.extra_columns and not self._told_of_extras:
            self._told_of_extras = True
            _log.warning(
                "the reward %r gives the column %r to log_extra, which is not recorded; give numbers to log_metric",
                function.label,
                notes.extra_columns[0],
            )


def _correlation(watched: Sequence[float | None], rewards: Sequence[float | None]) -> float | None:
    """Pearson's, over the rollouts that have both; None where either does not vary."""
    pairs = [(w, r) for w, r in zip(watched, rewards, strict=True) if w is not None and r is not None]
    if len(pairs) < 2:
        return None
    watched_K, rewards_K = np.array(pairs, dtype=np.float64).T
    watched_K, rewards_K = watched_K - watched_K.mean(), rewards_K - rewards_K.mean()
    norms = math.sqrt(float(watched_K @ watched_K) * float(rewards_K @ rewards_K))
    if norms <= 1e-12:
        return None
    return float(watched_K @ rewards_K) / norms


def _form_of(completion: Any, error: BaseException | None) -> str:
    """What a completion is, where the error looks as if the other form had been expected."""
    if not isinstance(error, AttributeError | TypeError | KeyError):
        return ""
    said = str(error)
    if isinstance(completion, str):
        hint = " (a completion is text in this run; with prompts.chat: true it is a list of messages)"
        return hint if re.search(r"string indices|'str' object", said) else ""
    hint = (
        " (a completion is a list of messages in this run, whose text is completion[-1]['content']; with prompts.chat: "
        "false, and prompts that are text, it is text)"
    )
    return hint if re.search(r"'list'|\blist\b", said) else ""


def _sentence(function: RewardFunction, i: int, reason: str, batch: Batch) -> str:
    start = text_of(batch.completions[i])[:80]
    prompt = "" if batch.places is None else f" (the prompt is {batch.places[i]})"
    return f"the reward {function.label!r} failed on rollout {i} (completion {start!r}): {reason}{prompt}"
