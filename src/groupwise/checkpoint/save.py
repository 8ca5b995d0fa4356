"""Writing a checkpoint, all or nothing, and removing those that are no longer wanted."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError

from groupwise.checkpoint.manifest import Manifest, Position, read_manifest, write_manifest
from groupwise.checkpoint.state import pack, size_bytes
from groupwise.checkpoint.weights import trained_weights, whole_weights, write_weights
from groupwise.errors import CheckpointError, RunFolderError
from groupwise.model.folder import replace_folder
from groupwise.records import TrainingGroup
from groupwise.records.rollout_file import write_rollouts

if TYPE_CHECKING:
    from groupwise.model.load import Policy

STATE = "state.pt"
"""Everything but the weights, by the names of the run's parts; `torch.load(..., weights_only=True)` reads it."""
BATCH = "batch.parquet"
"""The rollouts of a batch that some of its updates have used; absent between two steps."""

_BESIDE = 2**20  # manifest, small files and the file system's own
_log = logging.getLogger(__name__)


def _here(write: Callable[[], Path]) -> Path:
    """By this process, which is the only one."""
    return write()


def save_checkpoint(
    root: Path,
    position: Position,
    *,
    policy: Policy | None,
    parts: Mapping[str, Mapping[str, Any]],
    batch: Sequence[TrainingGroup] | None = None,
    metric: float | None = None,
    healthy: bool = True,
    by: Callable[[Callable[[], Path]], Path] = _here,
) -> Path:
    """Write a checkpoint beside its place, bring it to disk, checksum it, and move it into place.

    One of the same position is replaced. Whatever interrupts this leaves every earlier checkpoint as it was.

    Args:
        root: the run's folder of checkpoints, in full.
        position: where the run stands.
        policy: whose weights to write; None at the start of a run, whose configuration gives them.
        parts: the state of each part of the run.
        batch: the rollouts of a half-used batch; prompts are stored by id and tokens, without messages and columns.
        metric: the held-out metric that the best is chosen by.
        healthy: nothing is wrong with the run.
        by: has the writing done, by one of several processes that all call this, after they have put together what is
            divided among them.

    Returns:
        The checkpoint's folder.

    Raises:
        CheckpointError: not enough space, the folder cannot be written, or the weights are not finite.
    """
    folder = root / position.folder
    packed = pack(parts, "checkpoint")
    weights = None if policy is None else whole_weights(policy)

    def write(beside: Path) -> None:
        if policy is not None and weights is not None:
            write_weights(policy, beside, weights)
        torch.save(packed, beside / STATE)
        if batch is not None:
            write_rollouts(beside / BATCH, [_bare(each) for each in batch], step=position.step + 1)
        write_manifest(beside, version=_version(), metric=metric, healthy=healthy, position=position)

    def written() -> Path:
        refuse_without_space(root, size_bytes(packed) + size_bytes(weights or {}) + _BESIDE)
        try:
            replace_folder(folder, write)
        except (OSError, SafetensorError, RuntimeError, RunFolderError) as error:
            # torch reports a full disk as a RuntimeError of its own writer.
            reason = getattr(error, "strerror", None) or error.__cause__ or error
            raise CheckpointError(
                f"the checkpoint of {position} cannot be written in {root}: {reason}; free some space there"
            ) from error
        return folder

    return by(written)


def space_needed(policy: Policy) -> int:
    """Bytes of a whole checkpoint: the trained weights, AdamW's two moments of each, and what is beside them."""
    moments = 2 * sum(int(p.nbytes) for p in policy.model.parameters() if p.requires_grad)
    return _weight_bytes(policy) + moments + _BESIDE


def refuse_without_space(root: Path, needed: int) -> None:
    """Raise a CheckpointError when the file system of `root` has fewer than `needed` bytes left."""
    place = next(each for each in (root, *root.parents) if each.exists())
    free: int = shutil.disk_usage(place).free
    if free < needed:
        raise CheckpointError(
            f"a checkpoint takes {_megabytes(needed)}, and {place} has {_megabytes(free)} left; free some space, "
            "choose another run.dir, or set checkpoint.save=false"
        )


def saved_checkpoints(root: Path) -> list[tuple[Position, Path]]:
    """The checkpoints of a folder in the order of their steps (9 before 10), whole or not; other names are left out."""
    if not root.is_dir():
        return []
    found = [
        (Position.of(path.name), path) for path in root.iterdir() if path.is_dir() and not path.is_symlink()
    ]
    return sorted((position, path) for position, path in found if position is not None)


def healthy_checkpoints(root: Path, *, every: int) -> list[tuple[Position, Path]]:
    """Those between two steps whose step is a multiple of `every`, and that were healthy when written, in order."""
    found = []
    for position, path in saved_checkpoints(root):
        try:
            if position.update == 0 and position.step % every == 0 and read_manifest(path).healthy:
                found.append((position, path))
        except CheckpointError:
            continue
    return found


def rotate(root: Path, *, keep_last: int, back_every: int | None = None) -> None:
    """Remove checkpoints other than the last `keep_last`, the best and the last healthy one.

    The best is the one with the highest metric, the earlier of equals. What cannot be removed is told and stays.

    Args:
        root: the run's folder of checkpoints.
        keep_last: how many of the latest stay.
        back_every: the run may go back to healthy ones at multiples of so many steps, of which the last two stay; None
            for a run that does not go back.
    """
    found = saved_checkpoints(root)
    manifests: dict[Path, Manifest] = {}
    for _, path in found:
        try:
            manifests[path] = read_manifest(path)
        except CheckpointError:
            continue
    kept = {path for _, path in found[-keep_last:]}
    measured = [(m.metric, path) for path, m in manifests.items() if m.metric is not None]
    if measured:
        kept.add(max(measured, key=lambda pair: pair[0])[1])
    healthy = [path for path, manifest in manifests.items() if manifest.healthy]
    kept.update(healthy[-1:])
    if back_every is not None:
        kept.update(path for _, path in healthy_checkpoints(root, every=back_every)[-2:])
    for _, path in found:
        if path not in kept:
            remove_checkpoint(path)


def remove_checkpoint(path: Path) -> None:
    """Remove one; half of it is never left under its name. A failure is a warning."""
    gone = path.with_name(f".{path.name}.{os.getpid()}.old.partial")
    try:
        path.rename(gone)
        shutil.rmtree(gone)
    except OSError as error:
        _log.warning(
            "the checkpoint %s is no longer wanted but cannot be removed: %s; remove it by hand",
            path,
            error.strerror or error,
        )


def remove_leftovers(root: Path) -> None:
    """Remove what a killed process had not finished writing or removing; nobody else may be writing there."""
    for path in root.glob(".step-*.partial"):
        shutil.rmtree(path, ignore_errors=True)


def _bare(entry: TrainingGroup) -> TrainingGroup:
    """Without what the run's own prompts hold anyway, and JSON might not."""
    prompt = replace(entry.group.prompt, messages=None, columns={})
    return replace(entry, group=replace(entry.group, prompt=prompt))


def _weight_bytes(policy: Policy) -> int:
    return sum(int(each.nbytes) for each in trained_weights(policy).values())


def _megabytes(count: int) -> str:
    return f"{count / 2**20:,.0f} MB"


def _version() -> str | None:
    try:
        return importlib.metadata.version("groupwise")
    except importlib.metadata.PackageNotFoundError:
        return None
