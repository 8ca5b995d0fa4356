"""`groupwise check-reward`."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from groupwise.cli.words import SETTINGS

REWARD: Any = typer.Argument(
    metavar="REWARD",
    help="A built-in scorer, module:function, file.py:function; or a configuration, for its rewards together.",
    show_default=False,
)
DATA: Any = typer.Option(
    "--data", metavar="FILE", help="JSONL with prompts and what the reward reads.", show_default=False
)
SET: Any = typer.Option("--set", metavar="KEY=VALUE", help="A setting of the reward; may be repeated.")
COLUMN: Any = typer.Option(
    "--column",
    metavar="ARGUMENT=COLUMN",
    help="The column for an argument of another name; may be repeated.",
)
ANSWER: Any = typer.Option(
    "--answer",
    metavar="COLUMN",
    help="Where a right answer stands; looked for by default.",
    show_default=False,
)
NO_ANSWER: Any = typer.Option("--no-answer", help="The reward is about style: no answer is right or wrong.")
FORM: Any = typer.Option(
    "--form",
    metavar="TEMPLATE",
    help="How a right answer has to stand, such as '<a>{answer}</a>'; found by default.",
    show_default=False,
)
MODEL: Any = typer.Option(
    "--model",
    metavar="MODEL",
    help="Also on completions sampled from it: a model folder, a run folder, a .gguf file or a hub id.",
    show_default=False,
)
RUN: Any = typer.Option(
    "--run", metavar="RUN", help="Also on the last rollouts of a run folder.", show_default=False
)
ROWS: Any = typer.Option("--rows", metavar="N", min=1, help="Rows to try, spread over the data.")
REPEATS: Any = typer.Option("--repeats", metavar="N", min=2, help="How often the same batch is scored.")
STEP_SECONDS: Any = typer.Option(
    "--step-seconds",
    metavar="S",
    min=0.001,
    help="What a step takes without its rewards; 10, or as sampled or recorded.",
    show_default=False,
)
JSON_FILE: Any = typer.Option("--json", metavar="FILE", help="Write everything as JSON; - prints it.")


def check_reward(
    reward: Annotated[str, REWARD],
    overrides: Annotated[list[str] | None, SETTINGS] = None,
    data: Annotated[Path | None, DATA] = None,
    settings: Annotated[list[str] | None, SET] = None,
    columns: Annotated[list[str] | None, COLUMN] = None,
    answer: Annotated[str | None, ANSWER] = None,
    no_answer: Annotated[bool, NO_ANSWER] = False,
    form: Annotated[str | None, FORM] = None,
    model: Annotated[str | None, MODEL] = None,
    run: Annotated[Path | None, RUN] = None,
    rows: Annotated[int, ROWS] = 16,
    repeats: Annotated[int, REPEATS] = 3,
    step_seconds: Annotated[float | None, STEP_SECONDS] = None,
    json_file: Annotated[Path | None, JSON_FILE] = None,
) -> None:
    """Examine a reward before anything is trained on it.

    Completions are made up from the rows: right, wrong, empty, copied, repeated, listed and others that rewards have
    been cheated with. With --model they are also sampled, and with --run taken from a run. Says whether the reward is
    repeatable, tells right from wrong, spreads within groups, is fast enough, fails, or pays for a trick. Exit code 1
    when there is a fault.

    Example: groupwise check-reward numeric --data sums.jsonl
    """
    from groupwise.errors import ConfigError
    from groupwise.workbench.check_reward import Source, files_read
    from groupwise.workbench.check_reward import check_reward as examine
    from groupwise.workbench.outfile import STDOUT, replacing

    if no_answer and answer is not None:
        raise ConfigError("--answer and --no-answer contradict each other; give one")
    source = Source(
        reward=reward,
        data=data,
        overrides=overrides or (),
        settings=settings or (),
        columns=columns or (),
        model=model,
        run=run,
    )
    examined = functools.partial(
        examine,
        source,
        answer=answer,
        has_answers=not no_answer,
        form=form,
        rows=rows,
        repeats=repeats,
        step_seconds=step_seconds,
    )
    if json_file is None:
        found = examined()
    else:
        with replacing(json_file, inputs=files_read(source), option="--json") as file:
            found = examined()
            file.write(found.json())
    for line in found.lines():
        print(line, file=sys.stderr if json_file == STDOUT else sys.stdout)
    if not found.sound:
        raise typer.Exit(1)
