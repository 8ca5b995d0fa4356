"""A file that a command was asked to write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from groupwise.errors import DataError


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """Open `path` for text at once, so that a place that cannot be written is found out before the work is done.

    What is written appears under the name `path` when the block ends; when it raises, `path` stays as it was.

    Raises:
        DataError: the file cannot be written; names the remedy.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        if path.is_dir():
            raise DataError(f"--output {path} is a folder; name a file in it")
        file = beside.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise DataError(
            f"--output {path} cannot be written: {error.strerror or error}; name another file"
        ) from None
    try:
        with file:
            yield file
        os.replace(beside, path)
    except OSError as error:
        raise DataError(
            f"--output {path} cannot be written: {error.strerror or error}; name another file"
        ) from error
    finally:
        beside.unlink(missing_ok=True)
