"""Writing a file so that a reader sees the old one or the new one, never half of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from groupwise.errors import RunFolderError


def replace_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a file beside `path`, bring it to disk, then put it in the place of `path`.

    Args:
        path: the file to make or to replace; its folder must exist.
        write: given the open file; what it raises is passed on and `path` stays as it was.

    Raises:
        RunFolderError: the disk is full, the folder is missing or may not be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        try:
            with beside.open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise RunFolderError(
            f"{path} cannot be written: {error.strerror or error}; free some space or choose another run.dir"
        ) from error


def _sync_folder(folder: Path) -> None:
    # The new name must reach the disk too; only POSIX lets a folder be opened for that.
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
