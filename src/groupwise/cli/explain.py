"""`groupwise explain`."""

from __future__ import annotations

from typing import Annotated

import typer


def explain(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME_OR_CONFIG... [KEY=VALUE]...",
            help="Presets such as grpo, configurations or run folders; then settings that hold for all of them.",
            show_default=False,
        ),
    ],
) -> None:
    """Print the objective as a formula.

    With the configuration's numbers in it, and where each setting came from. Several names are shown side by side,
    and the factors that differ are marked.

    Example: groupwise explain grpo dr_grpo
    """
    from groupwise.errors import ConfigError
    from groupwise.workbench.explain import explain as formula
    from groupwise.workbench.explain import open_named, side_by_side

    settings = [word for word in words if "=" in word]
    named = [word for word in words if "=" not in word]
    if not named:
        raise ConfigError(
            "explain: name a preset or a configuration as well, for example `groupwise explain grpo`"
        )
    opened = [(name, open_named(name, settings)) for name in named]
    if len(opened) == 1:
        print(formula(*opened[0]))
    else:
        print(side_by_side(opened))
