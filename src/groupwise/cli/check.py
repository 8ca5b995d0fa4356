"""`groupwise check`."""

from __future__ import annotations

from typing import Annotated

from groupwise.cli.words import CONFIG, SETTINGS


def check(config: Annotated[str, CONFIG], settings: Annotated[list[str] | None, SETTINGS] = None) -> None:
    """Check a configuration, its data and rewards.

    The model is not loaded. Does the arithmetic of a batch in words, scores two made-up completions, and questions
    settings far outside what is usual.
    """
    from groupwise.config import load
    from groupwise.training.inputs import read_inputs
    from groupwise.workbench.check import check as look_at

    for line in look_at(read_inputs(load(config, settings or ()))):
        print(line)
