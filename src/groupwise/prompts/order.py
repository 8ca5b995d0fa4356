"""Which prompts make each step's batch: each once per epoch, in an order that resuming repeats exactly."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import CheckpointError, ConfigError, DataError


class PromptOrder:
    """Batches of prompt indexes, epoch after epoch, without end.

    Each epoch's order is a function of the seed and the epoch alone, so the position is two numbers. A batch does not
    cross into the next epoch: where `per_step` does not divide `count`, the last batch of an epoch is smaller, or left
    out with `drop_last` (with shuffling, other prompts are left out each epoch). Where only some prompts are ready, or
    more are asked for within a step, it does cross.

    Without weights an epoch holds every prompt once. With them it has as many places as there are prompts, divided
    among the sources by weight; each source goes round its own prompts, so that none is used twice before all of its
    source were used once.
    """

    def __init__(
        self,
        count: int,
        per_step: int,
        *,
        shuffle: bool,
        seed: int,
        drop_last: bool,
        sources: Sequence[str] = (),
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Start at the first batch of epoch 0.

        Args:
            count: number of prompts.
            per_step: prompts in a batch.
            shuffle: a new order each epoch; otherwise the order of the data.
            seed: non-negative; decides the orders.
            drop_last: leave out the last, smaller batch of each epoch.
            sources: the source of each prompt; only with weights.
            weights: of the sources, positive; None for every prompt once an epoch.

        Raises:
            DataError: no prompts, or a source with a weight has none.
            ConfigError: `per_step` below 1, `drop_last` leaves no batch at all, or a weight that gives a source no
                place in an epoch, or more places in a batch than it has prompts.
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
        """Batches in one epoch, when every prompt is ready and no more than a batch is taken in a step."""
        self.epoch: int = 0
        """0-based epoch of the next batch."""
        self._count, self._per_step, self._shuffle, self._seed = count, per_step, shuffle, seed
        self._drop_last = drop_last
        self._shares = None if weights is None else _shares(count, per_step, sources, weights)
        self._at = 0
        self._order = self._permutation()

    def next(self, ready: NDArray[np.bool_] | None = None) -> list[int]:
        """The indexes of the next batch, at most `per_step` of them, all different.

        Args:
            ready: which prompts may be taken, shape [count], some of them; None for all.
        """
        if ready is not None:
            return self.more(self._per_step, (), ready)
        self._skip_rest()  # more prompts than a batch may have been taken in the step before
        indexes: list[int] = self._order[self._at : self._at + self._per_step].tolist()
        self._go(len(indexes))
        self._skip_rest()
        return indexes

    def more(self, count: int, taken: Collection[int], ready: NDArray[np.bool_] | None = None) -> list[int]:
        """The next prompts that are ready and not yet taken in this step, across the end of an epoch if need be.

        Args:
            count: how many at most; fewer come when a whole round finds no more.
            taken: indexes that may not come again.
            ready: as in `next`.
        """
        found: list[int] = []
        held = set(taken)
        for _ in range(2 * self._count):  # from anywhere, every prompt comes within two epochs
            if len(found) == count or (ready is None and len(held) == self._count):
                break
            index = int(self._order[self._at])
            self._go(1)
            if index not in held and (ready is None or ready[index]):
                found.append(index)
                held.add(index)
        return found

    def steps(self, epochs: float) -> int:
        """Batches in so many epochs, rounded up: half an epoch of three batches is two."""
        return max(1, math.ceil(epochs * self.steps_per_epoch - 1e-9))

    @property
    def passes(self) -> float:
        """How often the data has been gone through so far; 1.5 is halfway through the second epoch."""
        whole = self.steps_per_epoch * self._per_step if self._drop_last else self._count
        return self.epoch + min(self._at / whole, 1.0)

    def state(self) -> dict[str, int]:
        """The position of the next prompt: `epoch`, and `prompt` in its order, both 0-based."""
        return {"epoch": self.epoch, "prompt": self._at}

    def restore(self, state: Mapping[str, int]) -> None:
        """Go to a position that `state` gave, so that the same batches follow.

        Raises:
            CheckpointError: not such a position, or one that this number of prompts does not have.
        """
        epoch, at = state.get("epoch"), state.get("prompt")
        if type(epoch) is not int or type(at) is not int or epoch < 0 or at < 0:
            raise CheckpointError(
                f"the position in the data is {dict(state)!r}, not an epoch and a prompt from 0 on"
            )
        if at >= self._count:
            raise CheckpointError(
                f"the checkpoint is at prompt {at} of an epoch, but an epoch has {self._count} prompts; resume with "
                "the data it had"
            )
        self.epoch, self._at = epoch, at
        self._order = self._permutation()

    def _skip_rest(self) -> None:
        if self._drop_last and self._count - self._at < self._per_step:
            self._go(self._count - self._at)

    def _go(self, count: int) -> None:
        self._at += count
        if self._at >= self._count:
            self.epoch, self._at = self.epoch + 1, 0
            self._order = self._permutation()

    def _permutation(self) -> NDArray[np.int64]:
        if self._shares is not None:
            return self._mixed(self._shares)
        return self._shuffled(np.arange(self._count), self.epoch)

    def _shuffled(self, indexes: NDArray[np.int64], *numbers: int) -> NDArray[np.int64]:
        """The same in an order that the seed and the numbers decide; as it is without shuffling."""
        if not self._shuffle:
            return indexes
        bits = np.random.Philox(np.random.SeedSequence([self._seed, *numbers]))
        return indexes[np.random.Generator(bits).permutation(len(indexes))]

    def _mixed(self, shares: Sequence[tuple[NDArray[np.int64], int]]) -> NDArray[np.int64]:
        """One epoch: the sources spread evenly over it, and no prompt twice in a batch."""
        parts, places = [], []
        for number, (indexes, share) in enumerate(shares):
            start = self.epoch * share
            rounds = range(start // len(indexes), (start + share - 1) // len(indexes) + 1)
            # A source's rounds are numbered apart from the epochs that order a run without weights.
            row = np.concatenate([self._shuffled(indexes, r, number, 1) for r in rounds])
            parts.append(row[start % len(indexes) :][:share])
            places.append((np.arange(share) + 0.5) / share)
        mixed = np.concatenate(parts)[np.argsort(np.concatenate(places), kind="stable")]
        return self._apart(mixed, shares)

    def _apart(
        self, mixed: NDArray[np.int64], shares: Sequence[tuple[NDArray[np.int64], int]]
    ) -> NDArray[np.int64]:
        """A prompt that comes twice in a batch, at the border of two rounds, changes places with one of another batch.

        One of the same source, so that every batch keeps its shares.
        """
        size, order = self._per_step, mixed.tolist()
        source_of = {
            index: number for number, (indexes, _) in enumerate(shares) for index in indexes.tolist()
        }
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            for k, index in enumerate(batch):
                if index not in batch[:k]:
                    continue
                for other in [*range(start + size, len(order)), *range(start)]:
                    first = other // size * size
                    theirs = order[first : first + size]
                    alike = source_of[order[other]] == source_of[index]
                    if alike and order[other] not in batch and index not in theirs:
                        batch[k] = order[start + k] = order[other]
                        order[other] = index
                        break
        return np.array(order, dtype=np.int64)


def _shares(
    count: int, per_step: int, sources: Sequence[str], weights: Mapping[str, float]
) -> list[tuple[NDArray[np.int64], int]]:
    """For each source its prompts, and how many places it has in an epoch: by largest remainder."""
    names = list(weights)
    of_source = [np.flatnonzero(np.array([source == name for source in sources])) for name in names]
    empty = next((name for name, indexes in zip(names, of_source, strict=True) if not len(indexes)), None)
    if empty is not None:
        raise DataError(
            f"the source {empty} has a weight, but no prompt of it is left; take it out of prompts.train"
        )
    given = np.array([weights[name] for name in names]) / max(
        weights.values()
    )  # the sum of large ones is infinite
    wanted = given / given.sum() * count
    places = np.floor(wanted).astype(np.int64)
    for k in np.argsort(places - wanted, kind="stable")[: count - int(places.sum())]:
        places[k] += 1
    for name, indexes, share in zip(names, of_source, places.tolist(), strict=True):
        if share == 0:
            raise ConfigError(
                f"the source {name} has the weight {weights[name]:g}, which gives it none of the {count} places of an "
                "epoch; raise it"
            )
        most = math.ceil(share / count * per_step)
        if most > len(indexes):
            raise ConfigError(
                f"the source {name} has {len(indexes)} prompts, but its weight of {weights[name]:g} asks for {most} of "
                f"the {per_step} in each batch; lower the weight or rollout.prompts_per_step"
            )
    return list(zip(of_source, places.tolist(), strict=True))
