"""`groupwise eval`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.words import MODEL, SETTINGS, SOURCE


def evaluate(
    source: Annotated[str, SOURCE],
    settings: Annotated[list[str] | None, SETTINGS] = None,
    model: Annotated[str | None, MODEL] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Other prompts than prompts.held_out, a JSONL file.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(metavar="T", help="Instead of evaluate.temperature; 0 is greedy.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(metavar="K", help="Responses per prompt, instead of evaluate.samples.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the numbers and every response as JSON; - prints it."),
    ] = None,
) -> None:
    """Measure a model on held-out prompts.

    The configuration's rewards decide; every response can be written to a file.

    Example: groupwise eval runs/first --temperature 1 --samples 4 --output result.json
    """
    from groupwise.workbench.evaluation import evaluate_model, files_read
    from groupwise.workbench.outfile import STDOUT, replacing
    from groupwise.workbench.trial import open_source

    words = [*(settings or ())]
    words += [] if temperature is None else [f"evaluate.temperature={temperature}"]
    words += [] if samples is None else [f"evaluate.samples={samples}"]
    loaded = open_source(source, words, model=model)
    if output is None:
        found = evaluate_model(loaded, data)
    else:
        with replacing(output, inputs=files_read(source, loaded, data)) as file:
            found = evaluate_model(loaded, data)
            file.write(found.json())
    for line in found.lines():
        print(line, file=sys.stderr if output == STDOUT else sys.stdout)
    if output is not None and output != STDOUT:
        print(f"wrote {output}")
