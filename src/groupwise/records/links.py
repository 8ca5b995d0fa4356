"""Links that lead out of a run folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from groupwise.errors import RunFolderError

# Folders whose files are told apart by their names, and read, replaced or removed one by one.
_LISTED = ("rollouts", "samples", "checkpoints", "events")


def refuse_links(folder: Path, names: Iterable[str]) -> None:
    """Refuse what is a link to outside, so that nobody's other files are read, written or removed as a run's.

    Args:
        folder: of the run; one that is not there is passed over.
        names: of what a run has at the top of its folder.

    Raises:
        RunFolderError: there is such a link; names it. Or the folder cannot be read.
    """
    own = {name.rstrip("/") for name in names} | {".lock"}
    try:
        top = [each for each in os.scandir(folder) if each.name in own]
        inside = [each for name in _LISTED for each in _entries(folder / name)]
        for each in (*top, *inside):
            if each.is_symlink() and not Path(each.path).resolve().is_relative_to(folder.resolve()):
                raise RunFolderError(
                    f"{each.path} is a link that leads out of the run folder; put in its place what it leads to, or "
                    "take the link away"
                )
    except (FileNotFoundError, NotADirectoryError):
        return  # no run folder either, which is told by whoever looks for its manifest
    except (OSError, RuntimeError, ValueError) as error:  # not readable, a loop of links, a NUL character
        raise RunFolderError(f"{folder} cannot be read: {error}") from None


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    return list(os.scandir(folder)) if folder.is_dir() and not folder.is_symlink() else []
