"""`groupwise smoke`."""

from __future__ import annotations

from typing import Annotated

import typer

from groupwise.cli.words import SETTINGS


def smoke(
    settings: Annotated[list[str] | None, SETTINGS] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides the weights and every sample.")] = 0,
    control: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="For developers: break the learning on purpose, which has to end in FAIL. One of learning-rate-zero, "
            "shuffled-rewards, flipped-sign.",
        ),
    ] = None,
) -> None:
    """See in half a minute that training works on this machine.

    A tiny model of random weights is built on the spot and trained on an obvious reward, the share of lower-case
    letters in a response. PASS only if the reward really rose; FAIL, with exit code 1, if not.
    """
    from groupwise.workbench.smoke import smoke as measure

    found = measure(seed, settings or (), control=control)
    print(found.sentence)
    if not found.passed:
        raise typer.Exit(1)
