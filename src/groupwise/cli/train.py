"""`groupwise train`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli.stopped import Stopped
from groupwise.cli.words import CONFIG, SETTINGS
from groupwise.errors import ConfigError
from groupwise.invocation import command

if TYPE_CHECKING:
    from groupwise.config import LoadedConfig
    from groupwise.records.run_folder import RunFolder
    from groupwise.training.loop import Result
    from groupwise.training.resume import Resumed
    from groupwise.training.setup import Run
    from groupwise.workbench.dpo import PreferenceRun

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
    processes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Train with so many processes on this machine, one for each GPU; see docs/scaling.md.",
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

    words = list(settings or ())
    if resume is not None and config is not None:
        words.insert(0, config)  # the first word is a setting too
    if resume is None and checkpoint is not None:
        raise ConfigError("--checkpoint goes with --resume, which names the run that it is of")
    if config is None and resume is None:
        raise ConfigError(
            "name a configuration (CONFIG), or give --resume with a run folder; `groupwise train --help` tells more"
        )
    if processes is not None and processes > 1:
        raise typer.Exit(_launched(processes, config, words, resume, checkpoint))
    resumed = None
    if resume is not None:
        from groupwise.records.run_folder import reopen

        reopen(Path(resume))  # what is no run is told before torch is imported
        from groupwise.training.resume import open_run

        loaded, resumed = open_run(resume, words, checkpoint=checkpoint)
    else:
        assert config is not None
        loaded = load(config, words)
    lines = (_on_pairs if loaded.config.method == "dpo" else _on_rollouts)(loaded, resumed)
    for line in ["", *lines] if lines else []:
        print(line)


def _launched(
    processes: int, config: str | None, words: Sequence[str], resume: str | None, checkpoint: str | None
) -> int:
    """The exit code of the same command in several processes. What can be found wrong before is told once."""
    import os

    from groupwise.config import load
    from groupwise.records.run_folder import reopen
    from groupwise.training.launch import launch

    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise ConfigError(
            "--processes starts processes of its own, but a launcher has started this one (WORLD_SIZE is "
            f"{os.environ['WORLD_SIZE']}); leave --processes out"
        )
    if resume is not None:
        source = str(reopen(Path(resume)).config_file)
        command = [
            "train",
            "--resume",
            resume,
            *(() if checkpoint is None else ("--checkpoint", checkpoint)),
            *words,
        ]
    else:
        assert config is not None
        source, command = config, ["train", config, *words]
    settings = load(source, words).config
    if settings.method == "dpo":
        raise ConfigError("method dpo trains in one process; leave --processes out")
    code = launch(command, processes, grace_seconds=settings.checkpoint.grace_seconds)
    if code == 130:
        raise Stopped(told=True)
    return code


def _on_rollouts(loaded: LoadedConfig, resumed: Resumed | None) -> list[str]:
    from groupwise.training.signals import Interrupted

    run = None
    try:
        if resumed is None:
            from groupwise.training.inputs import read_inputs, refuse_early

            inputs = read_inputs(loaded)
            refuse_early(loaded)
            from groupwise.training.setup import assemble  # imports torch, so what is wrong is told before

            run = assemble(inputs)
        else:
            from groupwise.training.start import resume as go_on

            run = go_on(loaded, resumed)
        from groupwise.training import loop

        if resumed is not None and run.keeper.step >= run.steps and run.ranks.first:
            print(f"all {run.steps} steps were finished before; a larger training.steps goes on")
        result = loop.train(run)
    except KeyboardInterrupt as error:
        told = run is not None and not run.ranks.first
        raise Stopped(_left(run, clean=isinstance(error, Interrupted)), told=told) from None
    return ending(run, result) if run.ranks.first else []


def _on_pairs(loaded: LoadedConfig, resumed: Resumed | None) -> list[str]:
    from groupwise.training.signals import Interrupted

    run = None
    try:
        if resumed is None:
            from groupwise.training.inputs import refuse_early
            from groupwise.workbench.preferences import read_preferences

            inputs = read_preferences(loaded)
            refuse_early(loaded)
            from groupwise.workbench import dpo  # imports torch, as above

            run = dpo.assemble(inputs)
        else:
            from groupwise.workbench import dpo

            run = dpo.resume(loaded, resumed)
        result = dpo.train(run)
    except KeyboardInterrupt as error:
        raise Stopped(_left(run, clean=isinstance(error, Interrupted))) from None
    return ending_on_pairs(run, result)


def _left(run: Run | PreferenceRun | None, *, clean: bool) -> str:
    """What there is of a run that was stopped."""
    if run is None:
        return "no step was finished"
    saved, shown = run.keeper.saved, run.folder.shown
    if saved is None:
        return f"{_finished(run.folder)}, without a checkpoint"
    go_on = f"`{command()} train --resume {shown}` goes on from {'there' if clean else saved}"
    if clean:
        return f"the run is saved at {saved}; {go_on}"
    return f"{_finished(run.folder)}; {go_on}"


def _finished(folder: RunFolder) -> str:
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
    from groupwise.records.metrics_file import nothing_learned

    lines = []
    measured = _before_and_after(result, "eval/pass@1", run.steps)
    if measured:
        lines.append(f"held-out pass@1  {measured} (of {len(run.held_out)} prompts)")
    if result.series("reward/mean"):
        lines.append(f"reward           {_first_and_last(result, 'reward/mean')}")
    nothing = nothing_learned(result.metrics)
    if nothing is not None:
        lines.append(f"learned          {nothing}")
    lines.append(f"run folder       {run.folder.shown}")
    config = run.config.run
    tries = [f"{command()} report {run.folder.shown}"]
    if config.save_model and run.config.rewards:
        if run.held_out and run.config.prompts.held_out:
            tries.append(f"{command()} eval {run.folder.shown}")
        if run.config.prompts.train:
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
