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
    from groupwise.workbench.check import check_pairs
    from groupwise.workbench.preferences import read_preferences

    loaded = load(config, settings or ())
    pairs = loaded.config.method == "dpo"
    for line in check_pairs(read_preferences(loaded)) if pairs else look_at(read_inputs(loaded)):
        print(line)
