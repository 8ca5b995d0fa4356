"""`groupwise train`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli.stopped import Stopped
from groupwise.cli.words import CONFIG, SETTINGS, command
from groupwise.errors import ConfigError

if TYPE_CHECKING:
    from groupwise.training.loop import Result
    from groupwise.training.setup import Run

_SHOWN = 5


def train(
    config: Annotated[str | None, CONFIG] = None,
    settings: Annotated[list[str] | None, SETTINGS] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="RUN",
            help="Go on with the run in this folder instead, from its last checkpoint.",
            show_default=False,
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --resume: an earlier one, such as step-000100; what came after it is given up.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Train a model, or go on with a run.

    Everything is read and checked before the model is loaded. The run folder (run.dir, or a dated one under runs/)
    gets the metrics, every rollout, checkpoints, and the trained model. Ctrl-C once ends the run when its step is
    finished, with a checkpoint.

    Example: groupwise train config.yaml training.steps=20 objective.kl.beta=0

    Example: groupwise train --resume runs/2026-01-31_10-00-00
    """
    from groupwise.config import load
    from groupwise.training import loop, start
    from groupwise.training.inputs import read_inputs
    from groupwise.training.setup import assemble
    from groupwise.training.signals import Interrupted

    words = list(settings or ())
    if resume is not None and config is not None:
        words.insert(0, config)  # the first word is a setting too
    if resume is None and config is None:
        raise ConfigError(
            "name a configuration (CONFIG), or give --resume with a run folder; `groupwise train --help` tells more"
        )
    if resume is None and checkpoint is not None:
        raise ConfigError("--checkpoint goes with --resume, which names the run that it is of")
    run = None
    try:
        if resume is not None:
            run = start.resume(resume, words, checkpoint=checkpoint)
        else:
            assert config is not None
            run = assemble(read_inputs(load(config, words)))
        result = loop.train(run)
    except KeyboardInterrupt as error:
        raise Stopped(_left(run, clean=isinstance(error, Interrupted))) from None
    print()
    for line in ending(run, result):
        print(line)


def _left(run: Run | None, *, clean: bool) -> str:
    """What there is of a run that was stopped."""
    if run is None:
        return "no step was finished"
    saved, shown = run.keeper.saved, run.folder.shown
    if saved is None:
        return f"{_finished(run)}, without a checkpoint"
    go_on = f"`{command()} train --resume {shown}` goes on from {'there' if clean else saved}"
    if clean:
        return f"the run is saved at {saved}; {go_on}"
    return f"{_finished(run)}; {go_on}"


def _finished(run: Run) -> str:
    try:
        lines = run.folder.metrics_file.read_text(encoding="utf-8").splitlines()
        finished = any(json.loads(line)["step"] > 0 for line in lines)
    except (OSError, ValueError):  # not there yet, or its first line is not complete
        finished = False
    if not finished:
        return f"no step was finished; {run.folder.shown} holds only how the run began"
    return f"every step finished until now is in {run.folder.shown}"


def ending(run: Run, result: Result) -> list[str]:
    """What a run ended with and what to try next, as lines."""
    lines = []
    name = "eval/pass@1"
    measured = [(line["step"], line[name]) for line in result.metrics if name in line]
    before = next((value for step, value in measured if step == 0), None)
    after = next((value for step, value in reversed(measured) if step == run.steps), None)
    if before is not None or after is not None:
        shown = [
            f"{value:.1%} {when}"
            for value, when in ((before, "before"), (after, "after"))
            if value is not None
        ]
        lines.append(f"held-out pass@1  {', '.join(shown)} (of {len(run.held_out)} prompts)")
    rewards = result.series("reward/mean")
    if rewards:
        shown_steps = min(_SHOWN, max(1, len(rewards) // 2))
        first, last = (sum(part) / len(part) for part in (rewards[:shown_steps], rewards[-shown_steps:]))
        steps = "step" if shown_steps == 1 else f"{shown_steps} steps"
        lines.append(f"reward           {first:.3f} in the first {steps}, {last:.3f} in the last {steps}")
    lines.append(f"run folder       {run.folder.shown}")
    config = run.config.run
    tries = []
    if config.save_model and run.config.rewards:
        if run.held_out and run.config.prompts.held_out is not None:
            tries.append(f"{command()} eval {run.folder.shown}")
        if run.config.prompts.train is not None:
            tries.append(f"{command()} sample {run.folder.shown} --row 0")
    if "tensorboard" in config.sinks:
        tries.append(f"{command('tensorboard')} --logdir {run.folder.shown / 'events'}")
    lines += [f"{'try next' if i == 0 else '':<15}  {words}" for i, words in enumerate(tries)]
    return lines
