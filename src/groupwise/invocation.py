"""How this process was started, for the commands that it advises."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def command(name: str = "groupwise") -> str:
    """How a person starts `groupwise`, or a program installed beside it, in the shell that started this process.

    The bare name where the shell finds this very program by it; else by the path that was used, since a command in an
    environment that is not activated is found by its path alone.
    """
    started = Path(sys.argv[0])
    if started.parts[-2:] == ("groupwise", "__main__.py"):  # python -m groupwise
        python, modules = Path(sys.executable), {"tensorboard": "tensorboard.main"}
        shown = python.name if _found_as(python.name, python) else str(python)
        return f"{shown} -m {modules.get(name, name)}"
    if started.stem != "groupwise" or _found_as(name, started.with_name(name)):
        return name
    return str(started.with_name(name))


def _found_as(name: str, program: Path) -> bool:
    found = shutil.which(name)
    return found is not None and Path(found).absolute() == program.absolute()
