"""Asks reward functions about a batch, and finds out which rollouts a call failed on.

A function is asked about the whole batch at once, or, with workers, about a part of it in each. A call that raises
is repeated on halves of its rollouts until those are alone that it fails on; async calls, and calls that took too
long or lost their process, are repeated for each rollout alone, so that the limit is waited for once and not at every
halving. A function that names `group_ids` compares the rollouts of a group, so for it the smallest part is a group.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

from groupwise.errors import GroupwiseError, RewardError, raised
from groupwise.rewards.batch import Batch, TrainerState
from groupwise.rewards.calling import Notes, Outcome, call_all, make_call
from groupwise.rewards.completions import text_of
from groupwise.rewards.dense import Dense
from groupwise.rewards.function import RewardFunction
from groupwise.rewards.values import Unusable, as_list, as_value

_log = logging.getLogger(__name__)

Rows = Sequence[int]
"""Some rollouts of a batch, by their number."""


class Asked:
    """One function, asked about one batch.

    Attributes:
        function: which.
        values: per rollout its value, or values along the response, None, or why it has none that can be used.
        errors: rollout to the exception that it failed with, where there was one.
        notes: what the calls that succeeded logged, in order.
        seconds: how long its calls took, added up.
    """

    def __init__(
        self, function: RewardFunction, batch: Batch, groups: Sequence[str], state: TrainerState
    ) -> None:
        self.function = function
        self.values: list[float | Dense | Unusable | None] = [None] * len(batch.completions)
        self.errors: dict[int, Exception] = {}
        self.notes: list[Notes] = []
        self.seconds = 0.0
        self._batch = batch
        self._groups = groups
        self._state = state

    def parts(self) -> list[list[int]]:
        """The rollouts of each first call: all of them, or one part per worker."""
        units = self._units(range(len(self.values)))
        return [sorted(chain(*some)) for some in _divided(units, self.function.workers)]

    def arguments(self, rows: Rows) -> dict[str, Any]:
        """The keywords of the call for some rollouts.

        Raises:
            DataError: as `RewardFunction.arguments`.
        """
        given = self._batch.arguments(rows, self._groups, self._state)
        columns = {name: [values[i] for i in rows] for name, values in self._batch.columns.items()}
        return self.function.arguments(given, columns)

    def take(self, rows: Rows, outcome: Outcome) -> None:
        """Take what the first call for some rollouts gave, and ask again where it failed.

        Raises:
            RewardError: it returned something other than one value per rollout; under `fail`, it failed on them
                together but on none of them alone.
            GroupwiseError: what it raised itself is of the configuration or the model, not of a rollout.
        """
        self._settle(rows, outcome)
        if outcome.error is None or any(isinstance(self.values[i], Unusable) for i in rows):
            return
        sentence = (
            f"the reward {self.function.label!r} failed on a batch of {len(rows)} rollouts, but on none of them alone: "
            f"{raised(outcome.error)}"
        )
        if outcome.lost:
            sentence += f"; give it more workers or a longer time, under {self.function.place}"
        if self.function.on_failure == "fail" and not outcome.lost:
            raise RewardError(sentence) from outcome.error
        _log.warning("%s", sentence)

    def _settle(self, rows: Rows, outcome: Outcome) -> None:
        self.seconds += outcome.seconds
        if isinstance(outcome.error, GroupwiseError) and not isinstance(outcome.error, RewardError):
            raise outcome.error  # a model or a file that is not there is no fault of any rollout
        if outcome.error is None:
            values = as_list(outcome.value, len(rows), who=f"the reward {self.function.label!r}")
            for i, value in zip(rows, values, strict=True):
                ids = self._batch.completion_ids
                self.values[i] = as_value(
                    value,
                    tokens=None if ids is None else len(ids[i]),
                    characters=len(text_of(self._batch.completions[i])),
                )
                if isinstance(value, Exception):
                    self.errors[i] = value
            self.notes.append(outcome.notes)
            return
        units = self._units(rows)
        if len(units) == 1:
            for i in rows:
                self.values[i] = Unusable(raised(outcome.error))
                self.errors[i] = outcome.error
            return
        apart = outcome.lost or outcome.awaited
        pieces = units if apart else [sorted(chain(*half)) for half in _divided(units, 2)]
        if apart or self.function.on_failure != "fail":
            for piece, its_outcome in zip(pieces, self._again(pieces, outcome), strict=True):
                self._settle(piece, its_outcome)
            return
        for piece in pieces:  # the first to fail ends the run, so the rest need not be asked
            self._settle(piece, *self._again([piece], outcome))
            if any(isinstance(self.values[i], Unusable) for i in piece):
                return

    def _again(self, pieces: Sequence[Rows], before: Outcome) -> list[Outcome]:
        """One call per piece. In workers, async ones are sent together, unless their worker was lost by that."""
        calls = [self.arguments(piece) for piece in pieces]
        pool = self.function.pool
        if pool is None:
            return call_all([make_call(self.function.function, each) for each in calls])
        pool.begin(_divided(calls, pool.count) if before.awaited else [[each] for each in calls])
        return list(chain(*pool.finish()))

    def _units(self, rows: Rows) -> list[list[int]]:
        """The smallest parts that a call can be about."""
        if not self.function.by_group:
            return [[i] for i in rows]
        units: dict[str, list[int]] = {}
        for i in rows:
            units.setdefault(self._groups[i], []).append(i)
        return list(units.values())


def ask_all(
    functions: Sequence[RewardFunction], batch: Batch, groups: Sequence[str], state: TrainerState
) -> list[tuple[Asked, list[tuple[Rows, Outcome]]]]:
    """The first calls of all functions: those with workers meanwhile, plain ones in order, async ones together.

    Args:
        functions: which to ask.
        batch: about what.
        groups: the group of each rollout.
        state: how far the run is.

    Returns:
        Per function what asks on, and what came of its first calls, for `Asked.take`.

    Raises:
        DataError: a function cannot be called with this batch.
        BaseException: what is no `Exception` (Ctrl-C, `SystemExit`, cancellation) is passed on.
    """
    asked = [Asked(function, batch, groups, state) for function in functions]
    parts = [each.parts() for each in asked]
    calls = [[each.arguments(rows) for rows in its] for each, its in zip(asked, parts, strict=True)]
    pools = {i: each.function.pool for i, each in enumerate(asked) if each.function.pool is not None}
    outcomes: dict[int, list[Outcome]] = {}
    try:
        for i, pool in pools.items():
            pool.begin([[arguments] for arguments in calls[i]])
        here = [i for i in range(len(asked)) if i not in pools]
        made = call_all([make_call(asked[i].function.function, calls[i][0]) for i in here])
        outcomes.update((i, [outcome]) for i, outcome in zip(here, made, strict=True))
        for i, pool in pools.items():
            outcomes[i] = list(chain(*pool.finish()))
    except BaseException:
        for pool in pools.values():
            pool.abandon()
        raise
    return [(each, list(zip(parts[i], outcomes[i], strict=True))) for i, each in enumerate(asked)]


def _divided(items: Sequence[Any], count: int) -> list[list[Any]]:
    """Neighbouring items together, in at most `count` parts of like size, none of them empty."""
    count = min(count, len(items))
    borders = [len(items) * k // count for k in range(count + 1)]
    return [list(items[low:high]) for low, high in pairwise(borders)]
