"""`groupwise report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Run folders, also of runs that go on; several stand side by side.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to write; report.html in the run folder by default.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write one HTML file to look at a run with.

    Curves with the findings on them, the configuration and its formula, groups down to the numbers of each token, the
    best and the worst rollouts, and samples. The file needs no network and nothing beside it.

    Example: groupwise report runs/first

    Example: groupwise report runs/first runs/second --output both.html
    """
    from groupwise.workbench.report import write_report

    written = write_report(runs, output)
    for note in written.notes:
        print(note)
    groups = " and ".join(f"{count:,}" for count in written.groups)
    print(f"{written.path}: {written.size_bytes / 1e6:.1f} MB, {groups} groups down to their tokens")
