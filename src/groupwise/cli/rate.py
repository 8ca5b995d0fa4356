"""`groupwise rate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from groupwise.workbench.rate import Answered

rate = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Let people rate responses blindly, from 1 to 5.",
)


@rate.command("export")
def export(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="One per model: run folders, which are sampled now, or files that `groupwise eval --output` wrote.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", metavar="FOLDER", help="A new folder for the sheet.", show_default=False),
    ],
    data: Annotated[
        Path | None,
        typer.Option(metavar="SOURCE", help="For run folders: other prompts than prompts.held_out."),
    ] = None,
    prompts: Annotated[int, typer.Option(metavar="N", min=1, help="Prompts at most, drawn by lot.")] = 30,
    per_prompt: Annotated[
        int, typer.Option(metavar="N", min=1, help="Responses of each model to each prompt at most.")
    ] = 1,
    question: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What raters are asked.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides which prompts, and the order.")] = 0,
) -> None:
    """Write a blinded sheet: sheet.csv, and sheet.html, which works offline and saves to a file.

    key.json says whose response is which; keep it from the raters.

    Example: groupwise rate export runs/first runs/second --output ratings
    """
    from groupwise.errors import ConfigError
    from groupwise.workbench import rate as sheet

    if len({Path(source).resolve() for source in sources}) < len(sources):
        raise ConfigError("a source is named twice; name each model once")
    answered = {source: _responses(source, data) for source in sources}
    asked = sheet.QUESTION if question is None else question
    count = sheet.export(answered, output, prompts=prompts, per_prompt=per_prompt, seed=seed, question=asked)
    print(f"{count} responses of {len(sources)} model{'s' if len(sources) > 1 else ''} in {output}")
    print(f"give raters   {output / sheet.SHEET_HTML} or {output / sheet.SHEET_CSV}")
    print(f"keep to you   {output / sheet.KEY}")


@rate.command("import")
def read(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="That `rate export` made.", show_default=False)
    ],
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="What raters sent back: files of the page, or filled-in copies of sheet.csv named after the rater.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the numbers as JSON; - prints it.")
    ] = None,
) -> None:
    """Say what the ratings come to: means with intervals, agreement among raters, preferences between models.

    Example: groupwise rate import ratings ratings-anna.json ben.csv
    """
    import sys

    from groupwise.workbench.outfile import STDOUT, replacing
    from groupwise.workbench.rate import KEY, read_ratings

    found = read_ratings(folder, files)
    if output is not None:
        with replacing(output, inputs=[folder / KEY, *files]) as file:
            file.write(found.json())
    for line in found.lines():
        print(line, file=sys.stderr if output == STDOUT else sys.stdout)


def _responses(source: str, data: Path | None) -> list[Answered]:
    from groupwise.workbench.evaluation import evaluate_model
    from groupwise.workbench.rate import Answered, readable, responses_in
    from groupwise.workbench.trial import open_source

    if Path(source).suffix.lower() == ".json":
        return responses_in(Path(source))
    found = evaluate_model(open_source(source), data)
    return [
        Answered(
            id=g.prompt.id,
            prompt=readable(g.prompt.messages, g.prompt.text),
            responses=[r.text for r in g.rollouts_G],
        )
        for g in found.groups
    ]
