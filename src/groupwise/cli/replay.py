"""`groupwise replay`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def replay(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Run folder, also of a run that goes on.", show_default=False),
    ],
    step: Annotated[
        int, typer.Option("--step", metavar="N", min=1, help="Which step, from 1.", show_default=False)
    ],
    group: Annotated[
        int | None,
        typer.Option(
            "--group", metavar="K", min=0, help="Only this group of it, from 0.", show_default=False
        ),
    ] = None,
) -> None:
    """Compute a step again from its records.

    Rewards and advantages always; with a checkpoint of the step before also the log-probs, and every update with its
    loss. Prints what differs from what was logged, and ends with exit code 1 when something does.

    Example: groupwise replay runs/first --step 12
    """
    from groupwise.workbench.replay import replay as again

    found = again(run, step, group=group)
    for line in found.lines():
        print(line)
    if found.differences:
        raise typer.Exit(1)
