"""A file that a command was asked to write."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from groupwise.errors import DataError

STDOUT = Path("-")
"""Stands for standard output."""
_BY_HAND = (".yaml", ".yml", ".py", ".toml")
"""The ends of names of files that no command writes, and that none replaces."""


@contextmanager
def replacing(path: Path, *, inputs: Sequence[Path] = (), option: str = "--output") -> Iterator[TextIO]:
    """Open `path` for text at once, so that a place that cannot be written is found out before the work is done.

    What is written to a file appears under its name when the block ends; when it raises, the file stays as it was. Of
    a link the target is written and the link stays. A pipe or a device is written straight into; `-` is standard
    output.

    Args:
        path: where to write.
        inputs: files that the work reads, which are not to be replaced; those that are not there do not matter.
        option: how the path was given, for errors.

    Raises:
        DataError: a folder, one of the inputs, configuration or code, or a place that cannot be written; names the
            remedy.
    """
    if path == STDOUT:
        yield sys.stdout
        return
    try:
        mode = _mode(path)
        _refuse(path, mode, inputs, option)
        if mode is not None and not stat.S_ISREG(mode):
            with path.open("w", encoding="utf-8", newline="\n") as file:
                yield file
            return
        target = Path(os.path.realpath(path))
        beside = target.with_name(f".{target.name}.{os.getpid()}.partial")
        try:
            with beside.open("w", encoding="utf-8", newline="\n") as file:
                yield file
            if mode is not None:
                shutil.copymode(target, beside)
            os.replace(beside, target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            f"{option} {path} cannot be written: {error.strerror or error}; name another file"
        ) from error


def _mode(path: Path) -> int | None:
    """What stands there, links followed; None for nothing."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _refuse(path: Path, mode: int | None, inputs: Sequence[Path], option: str) -> None:
    if mode is None:
        return
    if stat.S_ISDIR(mode):
        raise DataError(f"{option} {path} is a folder; name a file in it")
    if stat.S_ISBLK(mode):
        raise DataError(f"{option} {path} is a disk; name a file")
    for given in inputs:
        if given.exists() and given.samefile(path):
            raise DataError(f"{option} {path} is {given}, which is read here; name another file")
    if stat.S_ISREG(mode) and path.suffix.lower() in _BY_HAND:
        raise DataError(f"{option} {path} is there already, and people write such files; name another file")
