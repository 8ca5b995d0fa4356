"""`groupwise compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.stopped import Stopped
from groupwise.cli.words import CONFIG, SETTINGS


def compare(
    config: Annotated[str, CONFIG],
    settings: Annotated[list[str] | None, SETTINGS] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=V,V,...",
            help="What variants change: one for each value. May be repeated; each variant changes one thing.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="Runs per variant.")] = 3,
    metric: Annotated[
        str, typer.Option(metavar="NAME", help="The held-out metric that is compared.")
    ] = "eval/pass@1",
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="For the runs and the results; compared/ and the file's name by default."
        ),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(
            "--at-most", metavar="N", min=0, help="Make at most so many runs now.", show_default=False
        ),
    ] = None,
) -> None:
    """Compare variants of a configuration over seeds.

    Runs of one seed have the same prompts in the same order.

    Writes table.md, results.json and curves.svg. The same command goes on where it was stopped, also several times at
    once. Models, checkpoints and rollouts are not kept unless run.save_model=true or run.save_rollouts=true is given.

    Example: groupwise compare config.yaml --vary objective=grpo,dr_grpo,dapo --seeds 3
    """
    from groupwise.errors import ConfigError
    from groupwise.workbench.compare import compare as make
    from groupwise.workbench.compare import plan

    if not vary:
        hint = (
            "; runs that have ended are put side by side by `groupwise report A B`"
            if Path(config).is_dir()
            else ""
        )
        raise ConfigError(
            f"--vary is missing: name what variants change, such as --vary objective=grpo,dapo{hint}"
        )
    folder = output or Path("compared") / Path(config).stem
    runs = plan(config, vary, seeds=seeds, folder=folder, overrides=settings or ())
    try:
        found = make(runs, metric=metric, folder=folder, most=most)
    except KeyboardInterrupt:
        ended = sum(each.result.exists() for each in runs)
        raise Stopped(f"{ended} of {len(runs)} runs have ended; the same command goes on") from None
    print()
    print(found.table())
    print()
    for sentence in found.sentences():
        print(sentence)
    print(f"wrote {folder / 'table.md'}, {folder / 'results.json'} and {folder / 'curves.svg'}")
