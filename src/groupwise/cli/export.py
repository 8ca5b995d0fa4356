"""`groupwise export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    source: Annotated[
        str,
        typer.Argument(
            metavar="MODEL_OR_RUN",
            help="A run folder, for the model it trained; or a model folder, a .gguf file or a hub id.",
            show_default=False,
        ),
    ],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="TARGET",
            help="A file that ends in .gguf, for llama.cpp; or a folder, for Hugging Face.",
            show_default=False,
        ),
    ],
    adapter: Annotated[
        bool, typer.Option("--adapter", help="The LoRA adapter alone, as a PEFT folder.")
    ] = False,
    precision: Annotated[
        str, typer.Option(metavar="f16|f32", help="Of the matrices of a .gguf file.")
    ] = "f16",
) -> None:
    """Write a trained model for Hugging Face, PEFT or llama.cpp.

    An adapter is merged into the weights unless --adapter asks for it alone.

    Example: groupwise export runs/first first.gguf
    """
    from groupwise.errors import ConfigError
    from groupwise.workbench.export import export as write

    if precision not in ("f16", "f32"):
        raise ConfigError(f"--precision {precision!r:.40} is neither f16 nor f32")
    if adapter and target.suffix.lower() == ".gguf":
        raise ConfigError("--adapter writes a folder for PEFT, not a .gguf file; name a folder")
    form = write(source, target, adapter=adapter, precision=precision)  # type: ignore[arg-type]
    what = {"folder": "a Hugging Face folder", "adapter": "a PEFT adapter", "gguf": "a .gguf file"}[form]
    print(f"wrote {target}, {what}")
