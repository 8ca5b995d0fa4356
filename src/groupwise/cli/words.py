"""The words that several verbs take, explained once."""

from __future__ import annotations

from typing import Any

import typer

CONFIG: Any = typer.Argument(metavar="CONFIG", help="Configuration, a YAML file.", show_default=False)
SOURCE: Any = typer.Argument(
    metavar="CONFIG_OR_RUN",
    help="Configuration, a YAML file; or a run folder, for its configuration and the model it trained.",
    show_default=False,
)
SETTINGS: Any = typer.Argument(
    metavar="[KEY=VALUE]...",
    help="Settings that replace the file's, such as training.steps=10.",
    show_default=False,
)
MODEL: Any = typer.Option(
    "--model", metavar="FOLDER", help="Another model: a model folder, a run folder, a .gguf file or a hub id."
)
