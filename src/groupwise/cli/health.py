"""`groupwise health`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def health(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN",
            help="Run folder, also of a run that goes on; or the log of a run of TRL or verl.",
            show_default=False,
        ),
    ] = None,
    about: Annotated[
        str | None,
        typer.Option(
            "--about",
            metavar="CHECK",
            help="Instead: what a check's findings mean, how to confirm them, and what to try.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what happened as JSON, a line each.")
    ] = False,
) -> None:
    """Look at a run for what goes wrong in training.

    Reads the metrics of a finished, stopped or running run, and tells each finding with its numbers, likely causes and
    what to try. Ends with exit code 1 when a critical finding holds at the last step.

    A log of TRL or verl is a trainer_state.json, JSON lines, TensorBoard events, or the folder that holds them;
    docs/foreign_logs.md lists the names that are understood.

    Example: groupwise health runs/first

    Example: groupwise health trl-output/checkpoint-500/trainer_state.json

    Example: groupwise health --about dead_groups
    """
    from groupwise.errors import ConfigError
    from groupwise.records import Severity
    from groupwise.records.health_file import plain_event
    from groupwise.workbench.foreign_log import diagnose_log
    from groupwise.workbench.health import about as section
    from groupwise.workbench.health import diagnose

    if (run is None) == (about is None):
        raise ConfigError("name a run folder or a log to look at, or a check with --about; one of the two")
    if about is not None:
        print(section(about))
        return
    assert run is not None
    ours = (run.expanduser() / "manifest.json").is_file() or not run.expanduser().exists()
    found = diagnose(run) if ours else diagnose_log(run)
    if as_json:
        for event in found.events:
            print(json.dumps(plain_event(event), allow_nan=False))
    else:
        for line in found.lines():
            print(line)
    if any(finding.severity is Severity.CRITICAL for finding in found.open):
        raise typer.Exit(1)
