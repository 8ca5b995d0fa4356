"""A reward's values in units of their own spread, with statistics that may reach back over earlier steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import CheckpointError
from groupwise.rewards.term import Term

RELATIVE_TOLERANCE = 1e-6
"""Values that differ by less than this share of the largest are equal, as for the advantages of a group."""


class Statistics:
    """What normalises each reward, step by step.

    - `group`: (v - mean of the group) / std of the group.
    - `batch`: (v - mean of the batch) / std of the batch.

    The std is the sample std (divisor n - 1). Where there is no spread (see `RELATIVE_TOLERANCE`), or a single value,
    the result is exactly 0.

    With `smoothing` s > 0 the std of one step gives way to a running one, so that a step whose values happen to lie
    close together does not count as much as one in which they differ. At its t-th update a statistic x, of which this
    step says x_t, becomes m_t = s m_(t-1) + (1 - s) x_t, and is used as m_t / (1 - s^t), which makes the first step's
    own value that of the first step (Adam's bias correction, Kingma and Ba 2015, arXiv 1412.6980, section 3).

    - `group`: x is the mean over groups of the variance inside each; the centre stays the group's own mean.
    - `batch`: x is the variance of the batch, and a second one its mean, which is the centre.
    """

    def __init__(self) -> None:
        self._running: dict[str, dict[str, float]] = {}

    def normalised(
        self, term: Term, values: Sequence[float | None], groups: Sequence[str]
    ) -> list[float | None]:
        """The values of one reward in one step, normalised as its term says; None stays None.

        Args:
            term: says over what, and how smoothly.
            values: one per rollout, [N].
            groups: which group each rollout is of, [N].
        """
        rows = [i for i, value in enumerate(values) if value is not None]
        if term.normalise == "none" or not rows:
            return list(values)
        values_K = np.array([values[i] for i in rows], dtype=np.float64)
        if term.normalise == "batch":
            members = [np.arange(len(rows))]
        else:
            places: dict[str, list[int]] = {}
            for place, i in enumerate(rows):
                places.setdefault(groups[i], []).append(place)
            members = [np.array(each) for each in places.values()]
        means = [float(values_K[m].mean()) for m in members]
        stds = [_std(values_K[m]) for m in members]
        if term.smoothing > 0:
            flat = [term.normalise == "group" and std == 0 for std in stds]
            means, stds = self._smoothed(term, means, stds, [len(m) for m in members])
            stds = [0.0 if equal else std for std, equal in zip(stds, flat, strict=True)]
        result_K = np.zeros(len(rows))
        for member, mean, std in zip(members, means, stds, strict=True):
            if std > 0:
                result_K[member] = (values_K[member] - mean) / std
        result: list[float | None] = [None] * len(values)
        for i, value in zip(rows, result_K.tolist(), strict=True):
            result[i] = value
        return result

    def _smoothed(
        self, term: Term, means: list[float], stds: list[float], counts: list[int]
    ) -> tuple[list[float], list[float]]:
        variances = [std**2 for std, count in zip(stds, counts, strict=True) if count > 1]
        kept = self._running.setdefault(term.label, {"updates": 0.0, "mean": 0.0, "variance": 0.0})
        s = term.smoothing
        if variances:  # single values say nothing of the spread
            kept["updates"] += 1
            kept["variance"] = s * kept["variance"] + (1 - s) * sum(variances) / len(variances)
            kept["mean"] = s * kept["mean"] + (1 - s) * (means[0] if term.normalise == "batch" else 0.0)
        std = self.std(term)
        if std is None:
            return means, stds
        if term.normalise == "batch":
            means = [kept["mean"] / (1 - s ** kept["updates"])]
        return means, [std] * len(stds)

    def std(self, term: Term) -> float | None:
        """The running std of a reward; None without one."""
        kept = self._running.get(term.label)
        if kept is None or not kept["updates"]:
            return None
        return math.sqrt(kept["variance"] / (1 - term.smoothing ** kept["updates"]))

    def state(self) -> dict[str, Any]:
        """All that it remembers, as a mapping of plain numbers."""
        return {label: dict(kept) for label, kept in self._running.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave.

        Raises:
            CheckpointError: it does not have that form.
        """
        try:
            self._running = {
                str(label): {key: float(kept[key]) for key in ("updates", "mean", "variance")}
                for label, kept in state.items()
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the saved statistics of the rewards are damaged: {error!r}") from None


def _std(values_K: NDArray[np.float64]) -> float:
    if len(values_K) < 2:
        return 0.0
    spread = float(values_K.max() - values_K.min())
    if spread <= RELATIVE_TOLERANCE * float(np.abs(values_K).max()):
        return 0.0
    return float(values_K.std(ddof=1))
