"""`groupwise train`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from groupwise.cli.stopped import Stopped
from groupwise.cli.words import CONFIG, SETTINGS, command

if TYPE_CHECKING:
    from groupwise.training.loop import Result
    from groupwise.training.setup import Run

_SHOWN = 5


def train(
    config: Annotated[str, CONFIG],
    settings: Annotated[list[str] | None, SETTINGS] = None,
) -> None:
    """Train a model.

    Everything is read and checked before the model is loaded. The run folder (run.dir, or a dated one under runs/)
    gets the metrics, every rollout, and the trained model.

    Example: groupwise train config.yaml training.steps=20 objective.kl.beta=0
    """
    from groupwise.config import load
    from groupwise.training import loop
    from groupwise.training.inputs import read_inputs
    from groupwise.training.setup import assemble

    inputs = read_inputs(load(config, settings or ()))
    run = None
    try:
        run = assemble(inputs)
        result = loop.train(run)
    except KeyboardInterrupt:
        raise Stopped(_left(run)) from None
    print()
    for line in ending(run, result):
        print(line)


def _left(run: Run | None) -> str:
    """What there is of a run that was stopped."""
    if run is None:
        return "no step was finished"
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
