"""`groupwise eval`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from groupwise.cli.words import MODEL, SETTINGS

_K: Any = typer.Option(
    "--k",
    metavar="K,...",
    help="pass@k for these, such as 1,4,16, from as many samples; a greedy response is measured beside them.",
)
_DATA: Any = typer.Option(
    metavar="SOURCE",
    help="Other prompts than prompts.held_out: a file of rows, or another source by its name.",
)


def evaluate(
    source: Annotated[
        str,
        typer.Argument(
            metavar="MODEL_OR_RUN",
            help="A run folder, for its configuration and the model it trained; a configuration; or a model folder, a "
            ".gguf file or a hub id, with rewards=[...] and --data.",
            show_default=False,
        ),
    ],
    settings: Annotated[list[str] | None, SETTINGS] = None,
    model: Annotated[str | None, MODEL] = None,
    data: Annotated[Path | None, _DATA] = None,
    k: Annotated[str | None, _K] = None,
    temperature: Annotated[
        float | None, typer.Option(metavar="T", help="Instead of evaluate.temperature; 0 is greedy.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(metavar="N", help="Responses per prompt, instead of evaluate.samples.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Also BLEU and ROUGE against this column.")
    ] = None,
    diversity: Annotated[
        bool, typer.Option("--diversity", help="Also distinct-1, distinct-2 and self-BLEU.")
    ] = False,
    perplexity: Annotated[
        bool,
        typer.Option(
            "--perplexity", help="Also the responses' perplexity under the model that the run began from."
        ),
    ] = False,
    blind: Annotated[
        bool,
        typer.Option(
            "--blind", help="Also what answers get that ignore the question, such as the commonest one."
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the numbers and every response as JSON; - prints it."),
    ] = None,
) -> None:
    """Measure a model on held-out prompts.

    evaluate.rewards decide what passes, or the training rewards where there are none. Shares come with 95 % intervals
    over the prompts; every response can be written to a file.

    Example: groupwise eval runs/first --k 1,4,16 --output result.json

    Example: groupwise eval ./model rewards=[math_answer] prompts.columns.prompt=question --data test.jsonl
    """
    from groupwise.workbench.evaluation import Wanted, base_of, evaluate_model, files_read, sampling_words
    from groupwise.workbench.outfile import STDOUT, replacing
    from groupwise.workbench.trial import open_source

    loaded = open_source(source, settings or (), model=model, bare=True)
    words = sampling_words(loaded.config, _numbers(k), samples=samples, temperature=temperature)
    if words:
        loaded = open_source(source, [*(settings or ()), *words], model=model, bare=True)
    wanted = Wanted(
        reference=reference,
        diversity=diversity,
        base=base_of(source, loaded) if perplexity else None,
        blind=blind,
    )
    if output is None:
        found = evaluate_model(loaded, data, wanted)
    else:
        with replacing(output, inputs=files_read(source, loaded, data)) as file:
            found = evaluate_model(loaded, data, wanted)
            file.write(found.json())
    for line in found.lines():
        print(line, file=sys.stderr if output == STDOUT else sys.stdout)
    if output is not None and output != STDOUT:
        print(f"wrote {output}")


def _numbers(text: str | None) -> list[int]:
    """The numbers of `--k`."""
    from groupwise.errors import ConfigError

    words = [] if text is None else [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise ConfigError(f"--k {text!r:.60} is not a list of whole numbers above 0; give it as --k 1,4,16")
    return [int(word) for word in words]
