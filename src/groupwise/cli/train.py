"""`groupwise train`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from groupwise.cli.stopped import Stopped
from groupwise.cli.words import CONFIG, SETTINGS, command

if TYPE_CHECKING:
    from groupwise.config import LoadedConfig
    from groupwise.records.run_folder import RunFolder
    from groupwise.training.loop import Result
    from groupwise.training.setup import Run
    from groupwise.workbench.dpo import PreferenceRun

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

    loaded = load(config, settings or ())
    lines = _on_pairs(loaded) if loaded.config.method == "dpo" else _on_rollouts(loaded)
    print()
    for line in lines:
        print(line)


def _on_rollouts(loaded: LoadedConfig) -> list[str]:
    from groupwise.training import loop
    from groupwise.training.inputs import read_inputs
    from groupwise.training.setup import assemble

    inputs = read_inputs(loaded)
    run = None
    try:
        run = assemble(inputs)
        result = loop.train(run)
    except KeyboardInterrupt:
        raise Stopped(_left(None if run is None else run.folder)) from None
    return ending(run, result)


def _on_pairs(loaded: LoadedConfig) -> list[str]:
    from groupwise.workbench import dpo
    from groupwise.workbench.preferences import read_preferences

    inputs = read_preferences(loaded)
    run = None
    try:
        run = dpo.assemble(inputs)
        result = dpo.train(run)
    except KeyboardInterrupt:
        raise Stopped(_left(None if run is None else run.folder)) from None
    return ending_on_pairs(run, result)


def _left(folder: RunFolder | None) -> str:
    """What there is of a run that was stopped."""
    if folder is None:
        return "no step was finished"
    try:
        lines = folder.metrics_file.read_text(encoding="utf-8").splitlines()
        finished = any(json.loads(line)["step"] > 0 for line in lines)
    except (OSError, ValueError):  # not there yet, or its first line is not complete
        finished = False
    if not finished:
        return f"no step was finished; {folder.shown} holds only how the run began"
    return f"every step finished until now is in {folder.shown}"


def ending(run: Run, result: Result) -> list[str]:
    """What a run ended with and what to try next, as lines."""
    lines = []
    measured = _before_and_after(result, "eval/pass@1", run.steps)
    if measured:
        lines.append(f"held-out pass@1  {measured} (of {len(run.held_out)} prompts)")
    if result.series("reward/mean"):
        lines.append(f"reward           {_first_and_last(result, 'reward/mean')}")
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


def ending_on_pairs(run: PreferenceRun, result: Result) -> list[str]:
    """The same of a run on preference pairs."""
    lines = []
    measured = _before_and_after(result, "eval/dpo_accuracy", run.steps)
    if measured:
        lines.append(f"held-out         accuracy {measured} (of {len(run.held_out)} pairs)")
    lines.append(f"margin           {_first_and_last(result, 'dpo/margin_mean')}")
    lines.append(f"run folder       {run.folder.shown}")
    if "tensorboard" in run.config.run.sinks:
        lines.append(f"try next         {command('tensorboard')} --logdir {run.folder.shown / 'events'}")
    return lines


def _before_and_after(result: Result, name: str, steps: int) -> str:
    """A share before the first and after the last step, as far as it was measured."""
    measured = [(line["step"], line[name]) for line in result.metrics if name in line]
    before = next((value for step, value in measured if step == 0), None)
    after = next((value for step, value in reversed(measured) if step == steps), None)
    shown = ((before, "before"), (after, "after"))
    return ", ".join(f"{value:.1%} {when}" for value, when in shown if value is not None)


def _first_and_last(result: Result, name: str) -> str:
    """A metric at both ends of the run."""
    series = result.series(name)
    count = min(_SHOWN, max(1, len(series) // 2))
    first, last = (sum(part) / len(part) for part in (series[:count], series[-count:]))
    steps = "step" if count == 1 else f"{count} steps"
    return f"{first:.3f} in the first {steps}, {last:.3f} in the last {steps}"
