"""Finding a checkpoint that is whole, and reading it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from groupwise.checkpoint.manifest import Manifest, Position, verify
from groupwise.checkpoint.save import BATCH, STATE, saved_checkpoints
from groupwise.checkpoint.state import Stateful, unpack
from groupwise.checkpoint.weights import read_weights
from groupwise.errors import CheckpointError
from groupwise.records import TrainingGroup
from groupwise.records.rollout_file import read_rollouts
from groupwise.registry import nearest

if TYPE_CHECKING:
    from groupwise.model.load import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint whose every byte has been compared with its manifest."""

    folder: Path
    """Where it is."""
    manifest: Manifest
    """What it says of itself."""
    damaged: tuple[Path, ...] = ()
    """Later ones that were passed over."""

    @property
    def position(self) -> Position:
        """Where the run stood."""
        return self.manifest.position


def find_checkpoint(root: Path, name: str | None = None, *, say: Callable[[str], None]) -> Checkpoint:
    """The last whole checkpoint of a run, or the one of that name.

    Args:
        root: the run's folder of checkpoints.
        name: such as `step-000100`; None for the last. A damaged last one is passed over for the one before it.
        say: told of every one that is passed over.

    Raises:
        CheckpointError: there is none, none of that name, or none that is whole.
    """
    found = saved_checkpoints(root)
    if not found:
        raise CheckpointError(
            f"{root} holds no checkpoint, so there is nothing to resume from; start the run anew with "
            "run.overwrite=true"
        )
    if name is not None:
        names = [path.name for _, path in found]
        if name not in names:
            near = nearest(name, names)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(names)}"
            raise CheckpointError(f"there is no checkpoint {name!r} in {root}; {hint}")
        try:
            return Checkpoint(folder=root / name, manifest=verify(root / name))
        except CheckpointError as error:
            raise CheckpointError(
                f"{error}; name another checkpoint, or none for the last whole one"
            ) from None
    damaged: list[Path] = []
    for position, path in reversed(found):
        try:
            manifest = verify(path)
        except CheckpointError as error:
            say(f"the checkpoint of {position} is passed over: {error}")
            damaged.append(path)
        else:
            return Checkpoint(folder=path, manifest=manifest, damaged=tuple(damaged))
    raise CheckpointError(
        f"none of the {len(found)} checkpoints in {root} is whole; start the run anew with run.overwrite=true"
    )


def read_parts(checkpoint: Checkpoint) -> dict[str, Mapping[str, Any]]:
    """The state of each part of the run.

    Raises:
        CheckpointError: it cannot be read.
    """
    path = checkpoint.folder / STATE
    try:
        packed = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    parts: dict[str, Mapping[str, Any]] = unpack(packed)
    return parts


def read_batch(checkpoint: Checkpoint) -> list[TrainingGroup] | None:
    """The groups of the half-used batch; None between two steps."""
    path = checkpoint.folder / BATCH
    return read_rollouts(path) if path.is_file() else None


def restore(
    checkpoint: Checkpoint,
    states: Mapping[str, Mapping[str, Any]],
    *,
    policy: Policy,
    parts: Mapping[str, Stateful],
) -> None:
    """Put weights and parts in the state of a checkpoint.

    Args:
        checkpoint: where the weights are.
        states: as `read_parts` gives them.
        policy: takes the weights; at the start of a run they are those that the configuration names.
        parts: of the run, by name.

    Raises:
        CheckpointError: of another model or another run, or a part's state does not fit; says which.
    """
    missing, strange = sorted(set(parts) - set(states)), sorted(set(states) - set(parts))
    if missing or strange:
        what = (
            f"no state of {missing[0]}" if missing else f"the state of {strange[0]}, which this run has not"
        )
        raise CheckpointError(
            f"the checkpoint {checkpoint.folder} holds {what}; was it written by another version of groupwise "
            f"({checkpoint.manifest.version}), or with other settings?"
        )
    if checkpoint.position > Position(0):
        read_weights(policy, checkpoint.folder)
    for name, part in parts.items():
        part.restore(states[name])
