"""`groupwise score`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def score(
    reward: Annotated[
        str,
        typer.Argument(
            metavar="REWARD",
            help="A built-in scorer, module:function or file.py:function.",
            show_default=False,
        ),
    ],
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="JSONL with prompt, completion and the columns that the reward reads.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", metavar="FILE", help="JSONL to write; - prints it.", show_default=False),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the reward; may be repeated."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="ARGUMENT=COLUMN",
            help="The column for an argument of another name; may be repeated.",
        ),
    ] = None,
) -> None:
    """Apply a reward to completions in a file.

    One line is written for each line read, in the same order, with `reward`, `parts` and `failure`. A row that the
    reward fails on has the reward null and says why.

    Example: groupwise score numeric answers.jsonl --output scores.jsonl --column answer=solution
    """
    from groupwise.workbench.outfile import STDOUT
    from groupwise.workbench.score import score_to_file

    for line in score_to_file(reward, file, output, settings=settings or (), columns=columns or ()):
        print(line, file=sys.stderr if output == STDOUT else sys.stdout)
