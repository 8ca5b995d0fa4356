"""Opens a run's folder: configuration, manifest, metrics and sinks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import BaseFileLock
from rich.console import Console

from groupwise.config import LoadedConfig
from groupwise.config.checkpoint import CheckpointConfig
from groupwise.config.keys import leaves
from groupwise.health.watch import watch_of
from groupwise.invocation import command
from groupwise.records.run_folder import RunFolder, create, lock, write_manifest
from groupwise.training.config_file import write_config
from groupwise.training.distributed import ALONE, Ranks
from groupwise.training.recorder import Recorder
from groupwise.training.resume import Resumed
from groupwise.training.sinks import Guarded, Sink, TensorBoard, Tracker
from groupwise.training.terminal import Terminal


def open_recorder(
    loaded: LoadedConfig,
    *,
    steps: int,
    notices: Sequence[str],
    console: Console | None,
    origin: Mapping[str, Any],
    resumed: Resumed | None = None,
    ranks: Ranks = ALONE,
) -> Recorder:
    """The run folder with its configuration and manifest, and the sinks. The first of several ranks opens it.

    Args:
        loaded: the configuration.
        steps: in the run.
        notices: sentences to tell at the start.
        console: where they and the steps are told; a plain one by default.
        origin: where data and rewards came from, as keywords of `write_manifest`.
        resumed: the run that is gone on with; None for a new one.
        ranks: who train together.
    """
    recorder: Recorder | None = None

    def opened() -> RunFolder:
        nonlocal recorder
        recorder = _opened(loaded, steps, notices, console, resumed, ranks, origin)
        return recorder.folder

    folder = ranks.from_first(opened)
    watch = watch_of(loaded.config, base=loaded.base)
    return recorder or Recorder(folder, (), save_rollouts=False, watch=watch, ranks=ranks)


def _opened(
    loaded: LoadedConfig,
    steps: int,
    notices: Sequence[str],
    console: Console | None,
    resumed: Resumed | None,
    ranks: Ranks,
    origin: Mapping[str, Any],
) -> Recorder:
    config = loaded.config.run
    console = console or Console(highlight=False, soft_wrap=True)
    if resumed is None:
        folder = create(Path(config.dir) if config.dir else None, overwrite=config.overwrite)
        held: BaseFileLock | None = lock(folder)
        write_manifest(folder, seed=config.seed, command=sys.argv, notices=notices, **origin)
        write_config(folder, loaded)
    else:
        folder, held = resumed.folder, resumed.held
        notices = [*resumed.notices, *notices]
    terminal = Terminal(steps, console)
    watch = watch_of(loaded.config, base=loaded.base)
    terminal.findings = lambda: watch.findings
    if "terminal" in config.sinks:
        from_python = bool(origin.get("python_rewards") or origin.get("python_rows"))
        for sentence in (*notices, interruption(loaded.config.checkpoint, folder, from_python=from_python)):
            terminal.say(sentence)
    after = None if resumed is None else resumed.checkpoint.position.step
    return Recorder(
        folder,
        _sinks(loaded, folder, terminal, after=after),
        save_rollouts=config.save_rollouts,
        samples_every_steps=config.samples_every_steps,
        say=terminal.say if "terminal" in config.sinks else None,
        held=held,
        watch=watch,
        ranks=ranks,
    )


def interruption(config: CheckpointConfig, folder: RunFolder, *, from_python: bool) -> str:
    """What an interruption would cost, and how to go on after one: a sentence for the start of a run.

    Args:
        config: when checkpoints are written.
        folder: of the run.
        from_python: functions or rows were given in Python, so that it is gone on with from there.
    """
    if not config.save:
        return "no checkpoints are written (checkpoint.save is false), so a run that is interrupted is lost"
    every = [f"{config.every_steps} steps"] if config.every_steps is not None else []
    every += [f"{config.every_minutes:g} minutes"] if config.every_minutes is not None else []
    when = f"every {' or '.join(every)}, and" if every else "only"
    again = f"{command()} train --resume {folder.shown}"
    if from_python:
        again = f"groupwise.train(resume={str(folder.shown)!r}, ...)"
    return f"a checkpoint is written {when} at Ctrl-C and at the end; after an interruption `{again}` goes on"


def _sinks(loaded: LoadedConfig, folder: RunFolder, terminal: Terminal, *, after: int | None) -> list[Sink]:
    """Those of `run.sinks`, each opened and guarded."""
    tree = loaded.config.model_dump(mode="json")
    settings = dict(leaves(tree))
    name = folder.path.name
    make: dict[str, Callable[[], Sink]] = {
        "terminal": lambda: terminal,
        "tensorboard": lambda: TensorBoard(folder.events_dir, after=after),
        "wandb": lambda: Tracker("wandb", name, settings, dir=str(folder.path)),
        "trackio": lambda: Tracker("trackio", name, settings),
    }
    return [
        Guarded(make[chosen], chosen, terminal.say) for chosen in make if chosen in loaded.config.run.sinks
    ]
