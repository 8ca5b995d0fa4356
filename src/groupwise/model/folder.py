"""Writing a folder so that a reader sees the old one or the new one, never half of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path


def replace_folder(folder: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a folder beside `folder`, bring it to disk, then put it in the place of `folder`.

    A folder that is replaced is moved aside first, since a folder cannot be renamed onto another that has files; when
    the last step fails it is moved back.

    Args:
        folder: absolute path of the folder to make or to replace; parents are made.
        write: given the new folder's temporary path; what it raises is passed on and `folder` stays as it was.

    Raises:
        OSError: the disk is full or may not be written.
    """
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.old.partial")
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(beside, ignore_errors=True)
    try:
        beside.mkdir()
        write(beside)
        _to_disk(beside)
        if folder.exists():
            folder.rename(aside)
        try:
            beside.rename(folder)
        except OSError:
            if aside.exists():
                aside.rename(folder)
            raise
        _sync(folder.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        if folder.exists():
            shutil.rmtree(aside, ignore_errors=True)


def _to_disk(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            path.chmod(folder.stat().st_mode & 0o666)  # safetensors keeps its files from everybody else
            _sync(path)
    for path in (*(p for p in folder.rglob("*") if p.is_dir()), folder):
        _sync(path)


def _sync(path: Path) -> None:
    if path.is_dir() and os.name != "posix":
        return  # only POSIX lets a folder be opened for that
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
