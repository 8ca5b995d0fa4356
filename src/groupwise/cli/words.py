"""The words that several verbs take, explained once, and the commands that they advise."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import typer

CONFIG: Any = typer.Argument(metavar="CONFIG", help="Configuration, a YAML file.", show_default=False)
SOURCE: Any = typer.Argument(
    metavar="CONFIG_OR_RUN",
    help="Configuration, a YAML file; or a run folder, for its configuration and the model it trained.",
    show_default=False,
)
SETTINGS: Any = typer.Argument(
    metavar="[KEY=VALUE]...",
    help="Settings that replace the file's, such as training.steps=10.",
    show_default=False,
)
MODEL: Any = typer.Option(
    "--model", metavar="FOLDER", help="Another model: a model folder, a run folder, a .gguf file or a hub id."
)


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
