"""A file that grows by lines of JSON, and stays readable whenever its writer is killed."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from groupwise.errors import RunFolderError

_Read = TypeVar("_Read")


class LinesFile:
    """Appends lines, each handed to the system before `put` returns.

    Opening a file whose last line was torn by a crash cuts that line off, so that the next one starts clean.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            _mend_end(path)
            self._file = path.open("a", encoding="utf-8", newline="\n")
        except OSError as error:
            raise RunFolderError(f"{path} cannot be written: {error.strerror or error}") from error

    def put(self, line: Mapping[str, Any]) -> None:
        """Write one line of strict JSON.

        Raises:
            RunFolderError: it cannot be written, for example since the disk is full; what was there is intact.
        """
        try:
            self._file.write(json.dumps(line, allow_nan=False) + "\n")
            self._file.flush()
        except OSError as error:
            raise RunFolderError(
                f"{self.path} cannot be written: {error.strerror or error}; what it held before is intact"
            ) from error

    @property
    def size_bytes(self) -> int:
        """How long the file is."""
        return os.fstat(self._file.fileno()).st_size

    def cut(self, size_bytes: int) -> None:
        """Forget what was written behind the first `size_bytes`.

        Raises:
            RunFolderError: the file is shorter, or cannot be cut.
        """
        if self.size_bytes < size_bytes:
            raise RunFolderError(
                f"{self.path} has {self.size_bytes} bytes, fewer than the {size_bytes} it had; it was changed, or lost "
                "its end with the power; go back to an earlier checkpoint"
            )
        try:
            self._file.truncate(size_bytes)
        except OSError as error:
            raise RunFolderError(f"{self.path} cannot be written: {error.strerror or error}") from error

    def close(self) -> None:
        """Close the file; closing twice is harmless, and what a full disk cannot take is given up."""
        try:
            self._file.close()
        except OSError as error:
            raise RunFolderError(f"{self.path} cannot be written: {error.strerror or error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_lines(path: Path, read: Callable[[dict[str, Any]], _Read], *, what: str) -> list[_Read]:
    """Every whole line as `read` makes it of the object in it.

    A torn last line (the run was killed while writing it) is left out, and a warning says so.

    Args:
        path: of the file.
        read: raises ValueError for an object that is not one of ours.
        what: the lines are called in errors.

    Warns:
        UserWarning: the last line was cut short; says which, and how many whole ones there are.

    Raises:
        RunFolderError: no such file, or a line that is not one of ours; names its number.
    """
    lines, torn = split_lines(path, what)
    if torn is not None:
        warnings.warn(
            f"{path}, line {len(lines) + 1} was cut short after {len(torn)} characters (the run was killed while "
            f"writing it) and is left out; the {len(lines)} lines before it are whole",
            stacklevel=3,
        )
    found = []
    for number, text in enumerate(lines, start=1):
        try:
            line = json.loads(text, parse_constant=_no_constant)
            if not isinstance(line, dict):
                raise ValueError("it is no object")
            found.append(read(line))
        except ValueError as error:
            raise RunFolderError(f"{path}, line {number}: not a line of {what} ({error})") from None
    return found


def split_lines(path: Path, what: str) -> tuple[list[str], str | None]:
    """The whole lines, and what follows the last of them when that is not a whole JSON object.

    Args:
        path: of the file.
        what: it holds, for the error.

    Raises:
        RunFolderError: there is no such file, or it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise RunFolderError(f"there is no {what} file {path}; is this a run folder?") from None
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror or error}") from error
    *lines, end = text.split("\n")
    if not end:
        return lines, None
    try:
        json.loads(end)
    except ValueError:
        return lines, end
    return [*lines, end], None  # only the line break is missing


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} outside quotes is not JSON")


def _mend_end(path: Path) -> None:
    if not path.exists():
        return
    data = path.read_bytes()
    if not data or data.endswith(b"\n"):
        return
    _, torn = split_lines(path, "lines")
    with path.open("r+b") as file:
        if torn is None:
            file.seek(0, os.SEEK_END)
            file.write(b"\n")
        else:
            file.truncate(data.rfind(b"\n") + 1)
