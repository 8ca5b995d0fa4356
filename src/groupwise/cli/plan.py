"""`groupwise plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from groupwise.cli.words import CONFIG, SETTINGS


def plan(
    config: Annotated[str, CONFIG],
    settings: Annotated[list[str] | None, SETTINGS] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            metavar="CARD",
            help="A published card, such as h200 or rtx4090, or cpu; this machine's device by default.",
        ),
    ] = None,
    gpus: Annotated[int, typer.Option("--gpus", min=1, max=1024, help="Devices on a node.")] = 1,
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=4096, help="Nodes.")] = 1,
    prompt_tokens: Annotated[
        int | None,
        typer.Option(
            "--prompt-tokens",
            min=1,
            help="Tokens of the longest prompt; prompts.max_prompt_tokens by default.",
            show_default=False,
        ),
    ] = None,
    new_tokens: Annotated[
        int | None,
        typer.Option(
            "--new-tokens",
            min=1,
            help="Tokens of a usual response, for the seconds; rollout.max_new_tokens by default.",
            show_default=False,
        ),
    ] = None,
    reward_seconds: Annotated[
        float, typer.Option("--reward-seconds", min=0, help="Seconds to score a batch.")
    ] = 0.0,
) -> None:
    """Predict memory and step time on a card.

    Says what helps when it does not fit. The model is not loaded and the data is not read. Exit code 1 when it does not
    fit.

    Example: groupwise plan config.yaml --gpu h200 --gpus 8 --nodes 4
    """
    from groupwise.config import load
    from groupwise.errors import ConfigError
    from groupwise.workbench.planning.answer import Request
    from groupwise.workbench.planning.answer import plan as planned
    from groupwise.workbench.planning.devices import Layout, card, present, processor

    loaded = load(config, settings or ())
    limit = loaded.config.rollout.max_new_tokens
    if new_tokens is not None and new_tokens > limit:
        raise ConfigError(
            f"--new-tokens is {new_tokens}, more than rollout.max_new_tokens, {limit}; give less, or raise that setting"
        )
    device = present() if gpu is None else processor() if gpu.lower() == "cpu" else card(gpu)
    answer = planned(
        Request(
            loaded=loaded,
            device=device,
            layout=Layout(gpus=gpus, nodes=nodes),
            prompt_tokens=prompt_tokens,
            new_tokens=new_tokens,
            reward_seconds=reward_seconds,
        )
    )
    for line in answer.lines:
        print(line)
    if not answer.fits:
        raise typer.Exit(1)
