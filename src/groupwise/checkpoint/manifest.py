"""A checkpoint's own list of its files, by which a reader knows that every byte is there.

`manifest.json` names each file with its size and SHA-256, and carries the SHA-256 of itself.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.errors import CheckpointError

FORMAT = 1
"""Raised when what a checkpoint holds changes its meaning; readers refuse what is newer than they are."""
NAME = "manifest.json"

_FOLDER = re.compile(r"step-(\d{6,})(?:-update-(\d{4,}))?")


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where a run stands: steps finished, and updates done on the batch of the step in progress."""

    step: int
    """Steps finished; 0 before the first."""
    update: int = 0
    """Updates of the next step that are done; 0 between two steps."""

    @property
    def folder(self) -> str:
        """Name of the checkpoint's folder."""
        name = f"step-{self.step:06d}"
        return f"{name}-update-{self.update:04d}" if self.update else name

    @classmethod
    def of(cls, folder: str) -> Position | None:
        """The position that a folder's name states; None for any other name."""
        found = _FOLDER.fullmatch(folder)
        return None if found is None else cls(int(found[1]), int(found[2] or 0))

    def __str__(self) -> str:
        if not self.update:
            return f"step {self.step}" if self.step else "the start"
        return f"step {self.step + 1} after {self.update} update{'s' if self.update > 1 else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a checkpoint says of itself."""

    position: Position
    """Where the run stood."""
    version: str | None
    """Version of groupwise that wrote it."""
    metric: float | None
    """The held-out metric that the best is chosen by, where it was measured at this step."""
    healthy: bool
    """Nothing was found wrong with the run when it was written."""
    files: dict[str, dict[str, Any]]
    """Relative path to `bytes` and `sha256`."""


def write_manifest(
    folder: Path, *, version: str | None, metric: float | None, healthy: bool, position: Position
) -> None:
    """List every file of the folder, and write `manifest.json` beside them.

    Raises:
        OSError: a file cannot be read, or the manifest not written.
    """
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": _digest(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    content = {
        "format": FORMAT,
        "groupwise": version,
        "step": position.step,
        "update": position.update,
        "metric": metric,
        "healthy": healthy,
        "files": files,
    }
    content["sha256"] = _own_digest(content)
    (folder / NAME).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest:
    """The manifest, once it and its own checksum agree. The files are not looked at.

    Raises:
        CheckpointError: missing, damaged, or of a newer format.
    """
    path = folder / NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        stated = content.pop("sha256")
        if stated != _own_digest(content):
            raise ValueError("its checksum differs")
        if content["format"] > FORMAT:
            raise CheckpointError(
                f"{folder} has format {content['format']}, and this groupwise reads up to {FORMAT}; install a newer one"
            )
        return Manifest(
            position=Position(content["step"], content["update"]),
            version=content["groupwise"],
            metric=content["metric"],
            healthy=content["healthy"],
            files=content["files"],
        )
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None


def verify(folder: Path) -> Manifest:
    """Read every file of a checkpoint and compare it with the manifest.

    Raises:
        CheckpointError: the first file that is missing, cut short or changed, or whose place is outside the folder.
    """
    manifest = read_manifest(folder)
    if Position.of(folder.name) != manifest.position:
        raise CheckpointError(f"{folder} was written as {manifest.position.folder}; its folder was renamed")
    for name, stated in manifest.files.items():
        path = folder / name
        if Path(name).is_absolute() or not path.resolve().is_relative_to(folder.resolve()):
            raise CheckpointError(f"{folder / NAME} names {name}, which is outside the checkpoint")
        try:
            size = path.stat().st_size
            if size != stated["bytes"]:
                raise CheckpointError(f"{path} is damaged: it has {size} bytes of {stated['bytes']}")
            if _digest(path) != stated["sha256"]:
                raise CheckpointError(f"{path} is damaged: its checksum differs")
        except FileNotFoundError:
            raise CheckpointError(f"{path} is missing") from None
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None
    return manifest


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _own_digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
