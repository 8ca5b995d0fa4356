"""Which prompts make each step's batch: each once per epoch, in an order that resuming repeats exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import CheckpointError, ConfigError, DataError


class PromptOrder:
    """Batches of prompt indexes, epoch after epoch, without end.

    Each epoch is a permutation of its own, a function of the seed and the epoch alone, so the position is two
    numbers. A batch never crosses into the next epoch: where `per_step` does not divide `count`, the last
    batch of an epoch is smaller, or left out with `drop_last` (with shuffling, other prompts are left out
    each epoch).
    """

    def __init__(self, count: int, per_step: int, *, shuffle: bool, seed: int, drop_last: bool) -> None:
        """Start at the first batch of epoch 0.

        Args:
            count: number of prompts.
            per_step: prompts in a batch.
            shuffle: a new order each epoch; otherwise the order of the data.
            seed: non-negative; decides the orders.
            drop_last: leave out the last, smaller batch of each epoch.

        Raises:
            DataError: no prompts.
            ConfigError: `per_step` below 1, or `drop_last` leaves no batch at all.
        """
        if count < 1:
            raise DataError("there are no prompts to put in order")
        if per_step < 1:
            raise ConfigError(f"rollout.prompts_per_step is {per_step}; a batch has at least 1 prompt")
        if drop_last and count < per_step:
            raise ConfigError(
                f"{count} prompts do not fill one batch of {per_step} and prompts.drop_last is true, so "
                f"nothing is left; set it to false, or rollout.prompts_per_step to at most {count}"
            )
        self.steps_per_epoch: int = count // per_step if drop_last else -(-count // per_step)
        """Batches in one epoch."""
        self.epoch: int = 0
        """0-based epoch of the next batch."""
        self._count, self._per_step, self._shuffle, self._seed = count, per_step, shuffle, seed
        self._batch = 0
        self._order = self._permutation()

    def next(self) -> list[int]:
        """The indexes of the next batch, at most `per_step` of them, all different."""
        start = self._batch * self._per_step
        indexes: list[int] = self._order[start : start + self._per_step].tolist()
        self._batch += 1
        if self._batch == self.steps_per_epoch:
            self.epoch, self._batch = self.epoch + 1, 0
            self._order = self._permutation()
        return indexes

    def steps(self, epochs: float) -> int:
        """Batches in so many epochs, rounded up: half an epoch of three batches is two."""
        return max(1, math.ceil(epochs * self.steps_per_epoch - 1e-9))

    @property
    def passes(self) -> float:
        """How often the data has been gone through so far; 1.5 is halfway through the second epoch."""
        whole = min(self._count, self.steps_per_epoch * self._per_step)
        return self.epoch + min(self._batch * self._per_step, whole) / whole

    def state(self) -> dict[str, int]:
        """The position of the next batch: `epoch`, and `batch` within it, both 0-based."""
        return {"epoch": self.epoch, "batch": self._batch}

    def restore(self, state: Mapping[str, int]) -> None:
        """Go to a position that `state` gave, so that the same batches follow.

        Raises:
            CheckpointError: not such a position, or one that this number of prompts does not have.
        """
        epoch, batch = state.get("epoch"), state.get("batch")
        if type(epoch) is not int or type(batch) is not int or epoch < 0 or batch < 0:
            raise CheckpointError(
                f"the position in the data is {dict(state)!r}, not an epoch and a batch from 0 on"
            )
        if batch >= self.steps_per_epoch:
            raise CheckpointError(
                f"the checkpoint is at batch {batch} of an epoch, but an epoch has {self.steps_per_epoch} "
                f"batches ({self._count} prompts, {self._per_step} per step); resume with the data and "
                f"prompts_per_step it had"
            )
        self.epoch, self._batch = epoch, batch
        self._order = self._permutation()

    def _permutation(self) -> NDArray[np.int64]:
        if not self._shuffle:
            return np.arange(self._count)
        bits = np.random.Philox(np.random.SeedSequence([self._seed, self.epoch]))
        return np.random.Generator(bits).permutation(self._count)
