"""`groupwise sample`."""

from __future__ import annotations

from typing import Annotated

import typer

from groupwise.cli.words import MODEL, SETTINGS, SOURCE


def sample(
    source: Annotated[str, SOURCE],
    settings: Annotated[list[str] | None, SETTINGS] = None,
    prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What to answer.", show_default=False)
    ] = None,
    row: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="Instead: a row of the data, counted from 0.", show_default=False
        ),
    ] = None,
    held_out: Annotated[bool, typer.Option("--held-out", help="Count in prompts.held_out.")] = False,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="NAME=VALUE",
            help="A column for the rewards, beside --prompt; may be repeated.",
        ),
    ] = None,
    group_size: Annotated[
        int | None,
        typer.Option(metavar="G", min=1, help="Instead of rollout.group_size.", show_default=False),
    ] = None,
    model: Annotated[str | None, MODEL] = None,
) -> None:
    """Print a group of responses to a prompt.

    Each comes with its reward, the parts of that, and its advantage in the group.

    Example: groupwise sample config.yaml --prompt "What is 2 + 3?" --column answer=5 --group-size 4
    """
    from groupwise.workbench.sample import sample_group
    from groupwise.workbench.trial import open_source

    words = [*(settings or ())]
    words += [] if group_size is None else [f"rollout.group_size={group_size}"]
    loaded = open_source(source, words, model=model)
    for line in sample_group(loaded, prompt=prompt, row=row, held_out=held_out, columns=columns or ()):
        print(line)
