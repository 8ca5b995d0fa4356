"""`groupwise init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from groupwise.invocation import command


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder; made if need be.", show_default=False)
    ],
) -> None:
    """Write a configuration, data and a reward to start from.

    Nothing that is there already is replaced.
    """
    from groupwise.workbench.init import write_starter

    for path in write_starter(folder):
        print(f"wrote {path}")
    config = folder / "config.yaml"
    tries = [f"{command()} {verb} {config}" for verb in ("check", "check-reward", "train")]
    print("\ntry next  " + "\n          ".join(tries))
