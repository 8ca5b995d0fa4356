"""Going on with a run: its folder is all that is needed, and a few settings may be changed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from filelock import BaseFileLock

from groupwise.checkpoint.restore import Checkpoint, find_checkpoint, read_batch, read_parts, restore
from groupwise.checkpoint.save import remove_checkpoint, remove_leftovers, saved_checkpoints
from groupwise.checkpoint.state import Stateful
from groupwise.config import LoadedConfig, load
from groupwise.config.keys import leaves
from groupwise.errors import CheckpointError, ConfigError
from groupwise.records import Prompt
from groupwise.records.run_folder import (
    RunFolder,
    add_resumption,
    lock,
    read_manifest,
    reopen,
    versions,
)
from groupwise.training.config_file import write_config
from groupwise.training.distributed import ALONE, Ranks, join
from groupwise.training.in_use import BatchInUse

if TYPE_CHECKING:
    from groupwise.model.load import Policy
    from groupwise.training.keeper import Keeper
    from groupwise.training.recorder import Recorder

MAY_CHANGE: Mapping[str, str] = {
    "training.steps": "how long the run is; a schedule that falls to its end is stretched with it",
    "training.epochs": "the same",
    "training.learning_rate": "from the next step on",
    "training.schedule": "from the next step on",
    "training.warmup_steps": "from the next step on",
    "training.weight_decay": "from the next update on",
    "training.max_grad_norm": "from the next update on",
    "training.micro_batch_tokens": "memory and last bits only",
    "training.micro_batch_rollouts": "memory and last bits only",
    "training.gradient_checkpointing": "memory and speed only",
    "training.compile": "speed and last bits only",
    "training.reuse_sampling": "speed and last bits only",
    "training.max_bad_steps": "from the next update on",
    "rollout.cache_megabytes": "memory and last bits only",
    "rollout.pack_weights": "speed and last bits only",
    "memory.reference": "memory and speed only",
    "rollout.vllm.*": "which server samples, and how patiently; last bits only",
    "rollout.overlap": "from the next step on",
    "model.device": "another machine computes other last bits",
    "model.attention": "speed and last bits only",
    "distributed.*": "memory, speed and last bits only, as is the number of processes",
    "evaluate.*": "from the next evaluation on",
    "checkpoint.*": "from the next checkpoint on",
    "health.*": "from the next step on",
    "run.sinks": "from now on",
    "run.save_rollouts": "from the next step on",
    "run.samples_every_steps": "from the next step on",
    "run.save_model": "at the end",
}
"""Settings that may differ on resuming, with when that acts; `.*` for a whole section. All others are refused."""

_NO_MATTER = ("run.dir", "run.base", "run.overwrite")  # where, not what


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A run that is gone on with, as its folder tells of it."""

    folder: RunFolder
    """Where it is."""
    held: BaseFileLock | None
    """The lock on it, which the first of several ranks holds."""
    checkpoint: Checkpoint
    """From where."""
    chosen: bool
    """It was named, and may not be the last one."""
    changed: Mapping[str, tuple[Any, Any]]
    """Settings that differ, by key: before and now."""
    loaded: LoadedConfig
    """The configuration with them."""
    notices: tuple[str, ...]
    """What people should know."""

    @contextmanager
    def given_up_on_error(self) -> Iterator[None]:
        """Let the folder go when the run in it cannot be gone on with."""
        try:
            yield
        except BaseException:
            if self.held is not None:
                self.held.release()
            raise


def open_run(
    path: str | Path, overrides: Sequence[str] = (), *, checkpoint: str | None = None
) -> tuple[LoadedConfig, Resumed]:
    """Find out what a run folder can be gone on with, without changing anything in it.

    Args:
        path: the run folder.
        overrides: settings as `key=value`, of those in `MAY_CHANGE`.
        checkpoint: name of one, such as `step-000100`; None for the last whole one.

    Returns:
        The run's configuration with the changes, and the run.

    Raises:
        RunFolderError: not a run's folder, or another process is training in it.
        CheckpointError: no checkpoint, or none that is whole.
        ConfigError: a setting that may not change; names it.
    """
    folder = reopen(Path(path))
    before = load(folder.config_file)
    words = list(overrides)
    now = load(folder.config_file, words) if words else before
    changed = _changes(before, now)
    ranks = join(now.config.distributed)
    held = ranks.only_first(lambda: lock(folder))
    try:
        notices: list[str] = []
        found = ranks.from_first(
            lambda: find_checkpoint(folder.checkpoints_dir, checkpoint, say=notices.append)
        )
    except BaseException:
        if held is not None:
            held.release()
        raise
    batch = ", with the rollouts of the batch in use" if found.position.update else ""
    notices.append(f"resumed from the checkpoint of {found.position}{batch}")
    notices += [f"{key} is {new!r}, and was {old!r}" for key, (old, new) in changed.items()]
    notices += _other_versions(folder)
    settings = now.config.run.model_copy(update={"dir": str(folder.path), "overwrite": False})
    config = now.config.model_copy(update={"run": settings})
    loaded = LoadedConfig(config=config, origins=now.origins, base=now.base)
    return loaded, Resumed(
        folder=folder,
        held=held,
        checkpoint=found,
        chosen=checkpoint is not None,
        changed=changed,
        loaded=loaded,
        notices=tuple(notices),
    )


def refuse_without_python(folder: RunFolder, *, rewards: bool, rows: Sequence[str]) -> None:
    """Refuse to resume without the functions and rows that a run was given in Python, before anything is read.

    Args:
        folder: of the run.
        rewards: functions are given.
        rows: for which of `train` and `held_out` rows are given.

    Raises:
        CheckpointError: some are missing; says which.
    """
    then = read_manifest(folder)
    missing = [f"{name}=[...]" for name in then.get("python_rows", {}) if name not in rows]
    labels = then.get("python_rewards", ())
    if labels and not rewards:
        missing.insert(0, f"rewards=[...] ({', '.join(labels)})")
    if missing:
        raise CheckpointError(
            f"the run in {folder.shown} was started from Python with what no file holds; resume it from Python, with "
            f"groupwise.train(resume={str(folder.shown)!r}, {', '.join(missing)})"
        )


def check_data(folder: RunFolder, now: Mapping[str, Any]) -> None:
    """Compare data and rewards with those that the run was started with.

    Args:
        folder: of the run.
        now: their fingerprints as `records.run_folder.fingerprints` gives them.

    Raises:
        CheckpointError: they differ; says which and what to do.
    """
    then = read_manifest(folder)
    for name, stated in then.get("data", {}).items():
        if name in now["data"] and now["data"][name] != stated:
            raise CheckpointError(
                f"the data file {name} is not the one that the run in {folder.shown} was started with (its SHA-256 "
                "differs); put that file back, or start a new run"
                if "bytes" in stated
                else f"the rows of {name} are not those that the run in {folder.shown} was started with (their SHA-256 "
                "differs); bring those back, or start a new run"
            )
    for what, own in (("python_rewards", now["python_rewards"]), ("python_rows", now["python_rows"])):
        if then.get(what, own) != own:
            raise CheckpointError(
                f"the {what.removeprefix('python_')} given in Python are not those that the run in "
                f"{folder.shown} was started with; give groupwise.train the same, or start a new run"
            )


class Resumable(Protocol):
    """A run that has just been assembled."""

    @property
    def policy(self) -> Policy:
        """What is trained."""
        ...

    @property
    def parts(self) -> Mapping[str, Stateful]:
        """What has a memory."""
        ...

    @property
    def keeper(self) -> Keeper:
        """Where it stands."""
        ...

    @property
    def recorder(self) -> Recorder:
        """What it writes, and where."""
        ...


def take_up(
    run: Resumable, resumed: Resumed, prompts: Sequence[Prompt] = (), *, ranks: Ranks = ALONE
) -> None:
    """Put a run in the state of the checkpoint, and remove what came after it.

    Args:
        run: just assembled.
        resumed: what it is gone on with from.
        prompts: of the run, for a batch that was in use.
        ranks: who take it up together; all of them read the checkpoint.

    Raises:
        CheckpointError: the checkpoint is of another model or run; nothing was removed.
    """
    try:
        _take_up(run, resumed, prompts, ranks)
    except BaseException:
        run.recorder.close()
        raise


def _take_up(run: Resumable, resumed: Resumed, prompts: Sequence[Prompt], ranks: Ranks) -> None:
    checkpoint = resumed.checkpoint
    states = read_parts(checkpoint)
    groups = read_batch(checkpoint)
    batch = None if groups is None else BatchInUse.of(states["keeper"]["batch"], groups, prompts)
    restore(checkpoint, states, policy=run.policy, parts=run.parts)
    run.keeper.batch = batch
    run.keeper.saved = checkpoint.position
    ranks.from_first(lambda: _put_in_order(resumed))


def _put_in_order(resumed: Resumed) -> None:
    """Remove what came after the checkpoint, and note the resumption."""
    checkpoint, folder = resumed.checkpoint, resumed.folder
    remove_leftovers(folder.checkpoints_dir)
    for path in checkpoint.damaged:
        _put_aside(path)
    if resumed.chosen:  # those of a future that is given up
        for position, path in saved_checkpoints(folder.checkpoints_dir):
            if position > checkpoint.position:
                remove_checkpoint(path)
    if resumed.changed:
        write_config(folder, resumed.loaded)
    changed = {key: {"before": old, "now": new} for key, (old, new) in resumed.changed.items()}
    add_resumption(folder, at=checkpoint.folder.name, command=sys.argv, changed=changed)


def _put_aside(path: Path) -> None:
    """A damaged checkpoint keeps its files, under a name that is not taken for one."""
    aside = path.with_name(f"{path.name}.damaged")
    number = 2
    while aside.exists():
        aside, number = path.with_name(f"{path.name}.damaged-{number}"), number + 1
    try:
        path.rename(aside)
    except OSError as error:
        raise CheckpointError(
            f"{path} is damaged and cannot be renamed: {error.strerror or error}"
        ) from error


def _changes(before: LoadedConfig, now: LoadedConfig) -> dict[str, tuple[Any, Any]]:
    old, new = (dict(leaves(each.config.model_dump(mode="json"))) for each in (before, now))
    changed = {}
    for key in dict.fromkeys((*old, *new)):
        if old.get(key) == new.get(key) or key in _NO_MATTER:
            continue
        if not _may_change(key):
            raise ConfigError(
                f"{key} cannot be changed on resuming: it is {old.get(key)!r} in this run; start a new run with "
                f"{key}={new.get(key)!r}, or leave it"
            )
        changed[key] = (old.get(key), new.get(key))
    return changed


def _may_change(key: str) -> bool:
    sections = (
        key.rsplit(".", count)[0] for count in range(key.count(".") + 1)
    )  # a null section is a key itself
    return key in MAY_CHANGE or any(f"{section}.*" in MAY_CHANGE for section in sections)


def _other_versions(folder: RunFolder) -> list[str]:
    then, now = read_manifest(folder).get("versions", {}), versions()
    other = [f"{name} {now[name]} ({then[name]})" for name in now if name in then and then[name] != now[name]]
    if not other:
        return []
    return [f"other versions than the run began with, so last bits may differ: {', '.join(other)}"]
