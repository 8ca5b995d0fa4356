"""The folder of one run: where each file is, how it is made, and what it was made with.

`manifest.json` marks a folder as a run of ours, so it is written before anything else.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout

from groupwise.errors import RunFolderError
from groupwise.records.links import refuse_links
from groupwise.records.replace import replace_file
from groupwise.secrets import without_secrets

FILES: Mapping[str, str] = {
    "config.yaml": "Every setting of the run, resolved. Starting from it repeats the run, unless rewards or rows were "
    "given in Python, which no file holds. Comments at its end say where values came from.",
    "manifest.json": "What the run was made with; see the fields below.",
    "metrics.jsonl": "One line of numbers per step; see the names below.",
    "health.jsonl": "What went wrong and where, one line each; not there when nothing did; see the fields below.",
    "rollouts/": "Every rollout as Parquet, `step-000123.parquet` for step 123; see the columns below.",
    "checkpoints/": "What the run can be resumed from, a folder each, `step-000123/` for the end of step 123; see "
    "[checkpoints](checkpoints.md).",
    "samples/": "A few rollouts as Markdown, for people to read: `step-000100.md` of the batch of a step, "
    "`step-000100-held-out.md` of the evaluation after it.",
    "events/": "The same metrics for TensorBoard: `tensorboard --logdir FOLDER/events`.",
    "model/": "The trained model and its tokenizer as a plain Hugging Face folder; with LoRA the merged weights, and "
    "the adapter alone in `model/adapter/`.",
    "report.html": "What `groupwise report` made of the folder; `side_by_side.html` of it and other runs.",
}
"""What a run folder holds, by name."""

MANIFEST: Mapping[str, str] = {
    "groupwise": "Version of groupwise; its presence marks the folder as a run.",
    "versions": "Versions of Python and of the packages that numbers depend on; null for one not installed.",
    "platform": "Operating system, processor architecture and the number of cores that the process may use.",
    "seed": "Decides the order of prompts and every sample.",
    "command": "The words that started the run.",
    "data": "For each source by its name: its SHA-256, and the size in bytes of a file or the number of other rows.",
    "python_rewards": "Labels of the rewards that were given as Python functions; empty for none.",
    "notices": "What people were told at the start: the model, what is in force, what to look at.",
    "python_rows": "For `train` and `held_out`, where rows were given in Python: how many, and SHA-256 as JSON lines.",
    "resumed": "For each time the run was taken up again: the checkpoint it was `at`, the `command`, the `versions` "
    "then, and the settings that were `changed`, each with its value before and its new one.",
}
"""The fields of manifest.json."""

# What overwriting may remove: the names that a run writes, and nothing else that people may have put beside them.
_OURS = (
    "config.yaml",
    "metrics.jsonl",
    "health.jsonl",
    "report.html",
    "side_by_side.html",
    "rollouts/step-*.parquet",
    "samples/step-*",
    "events/events.out.tfevents.*",
    "model/*.safetensors",
    "model/*.json",
    "model/*.jinja",
    "model/*.model",
    "model/*.py",
    "model/merges.txt",
    "model/vocab.txt",
    "model/adapter/*.safetensors",
    "model/adapter/*.json",
    "checkpoints/step-*/manifest.json",
    "checkpoints/step-*/*.safetensors",
    "checkpoints/step-*/state.pt",
    "checkpoints/step-*/batch.parquet",
    "checkpoints/step-*/adapter/*.safetensors",
    "checkpoints/step-*/adapter/*.json",
    ".*.partial",
    "*/.*.partial",
    ".lock",
    "manifest.json",  # last, so that an overwrite that was interrupted can be repeated
)

# Folders that a run makes, inner ones first. Overwriting removes those that it leaves empty.
_FOLDERS = ("model/adapter", "checkpoints/step-*/adapter", "checkpoints/step-*")

_PACKAGES = ("torch", "transformers", "tokenizers", "peft", "safetensors", "numpy", "pyarrow")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The places inside one run's folder. Making the object touches nothing."""

    path: Path
    """The folder itself; in full as `create` makes it."""

    @property
    def shown(self) -> Path:
        """The folder as people are told it: relative when it lies under the working folder."""
        here = Path.cwd()
        return self.path.relative_to(here) if self.path.is_relative_to(here) else self.path

    @property
    def config_file(self) -> Path:
        """The resolved configuration, `config.yaml`."""
        return self.path / "config.yaml"

    @property
    def manifest_file(self) -> Path:
        """What the run was made with, `manifest.json`."""
        return self.path / "manifest.json"

    @property
    def metrics_file(self) -> Path:
        """One line per step, `metrics.jsonl`."""
        return self.path / "metrics.jsonl"

    @property
    def health_file(self) -> Path:
        """What went wrong, `health.jsonl`."""
        return self.path / "health.jsonl"

    @property
    def rollouts_dir(self) -> Path:
        """The Parquet files, `rollouts/`."""
        return self.path / "rollouts"

    @property
    def checkpoints_dir(self) -> Path:
        """What the run can be resumed from, `checkpoints/`."""
        return self.path / "checkpoints"

    @property
    def samples_dir(self) -> Path:
        """Rollouts as text, `samples/`."""
        return self.path / "samples"

    @property
    def events_dir(self) -> Path:
        """TensorBoard's, `events/`."""
        return self.path / "events"

    @property
    def model_dir(self) -> Path:
        """The trained model, `model/`."""
        return self.path / "model"

    @property
    def report_file(self) -> Path:
        """The report, `report.html`."""
        return self.path / "report.html"

    def rollout_file(self, step: int) -> Path:
        """The Parquet file of one step, numbered with six digits."""
        return self.rollouts_dir / f"step-{step:06d}.parquet"

    def sample_file(self, step: int, *, held_out: bool = False) -> Path:
        """The Markdown file with samples of one step's batch, or of the evaluation after it."""
        return self.samples_dir / f"step-{step:06d}{'-held-out' if held_out else ''}.md"

    def remove_after(self, step: int) -> None:
        """Remove the rollouts and samples of later steps, and files that a killed process left unfinished.

        Raises:
            RunFolderError: one cannot be removed.
        """
        try:
            for folder in (self.rollouts_dir, self.samples_dir):
                for path in sorted(folder.glob("step-*.*")):
                    number = path.stem.removeprefix("step-").removesuffix("-held-out")
                    if number.isdecimal() and int(number) > step:
                        path.unlink()
            for path in (*self.path.glob(".*.partial"), *self.path.glob("*/.*.partial")):
                if path.is_file():
                    path.unlink()
        except OSError as error:
            raise RunFolderError(
                f"{error.filename} is of a step after the checkpoint, and cannot be removed: {error.strerror}"
            ) from error


def create(path: Path | None, *, overwrite: bool) -> RunFolder:
    """Make the folder of a new run, with its subfolders for rollouts and samples.

    Args:
        path: relative to the working folder; None for a dated one under `runs/` that is not there yet.
        overwrite: when the folder holds a run of ours, remove the files that groupwise wrote, and only these.

    Raises:
        RunFolderError: the folder is not empty, or cannot be written; names the remedy.
    """
    try:
        refuse(path, overwrite=overwrite)
        # In full, so that a reward that changes the working folder does not take the run's files along.
        parent = Path("runs").absolute()
        if path is not None:
            path = path.expanduser().absolute()
        if path is None:
            path = _dated(parent)
        elif path.is_dir() and not _holds_nothing(path):
            with lock(RunFolder(path)):
                _make_room(path)
        folder = RunFolder(path)
        for each in (folder.path, folder.rollouts_dir, folder.samples_dir):
            each.mkdir(parents=True, exist_ok=True)
        # A folder that exists may still be on a read-only file system; only writing tells, for root above all.
        probe = folder.path / ".probe.partial"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        what = f"the folder {parent}" if path is None else f"run.dir {path}"
        raise RunFolderError(
            f"{what} cannot be written: {error.strerror or error}; choose another run.dir"
        ) from error
    return folder


def reopen(path: Path) -> RunFolder:
    """The folder of a run that is to be gone on with.

    Raises:
        RunFolderError: no such folder, or not one of ours.
    """
    folder = RunFolder(Path(path).expanduser().absolute())
    if not folder.path.is_dir():
        raise RunFolderError(f"there is no run folder {path}; --resume takes the folder that a run made")
    read_manifest(folder)
    if not folder.config_file.is_file():
        raise RunFolderError(f"{path} has no config.yaml, so the run in it cannot be resumed")
    for each in (folder.rollouts_dir, folder.samples_dir):
        each.mkdir(exist_ok=True)
    return folder


def lock(folder: RunFolder) -> BaseFileLock:
    """Hold the folder for this process until the lock is released or the process ends, however it ends.

    Raises:
        RunFolderError: another process holds it.
    """
    held = FileLock(folder.path / ".lock")
    try:
        held.acquire(timeout=0)
    except Timeout:
        raise RunFolderError(
            f"another process is training in {folder.shown}; wait for its end, or choose another run.dir"
        ) from None
    except OSError as error:
        raise RunFolderError(
            f"run.dir {folder.path} cannot be written: {error.strerror or error}; choose another run.dir"
        ) from error
    return held


def refuse(path: Path | None, *, overwrite: bool) -> None:
    """Find out whether `create` would refuse the folder, without touching anything.

    To be called before a model is loaded, which takes long. Only `create` really tries to write.

    Raises:
        RunFolderError: the folder is not empty or may not be written, or a file is in its place; names the remedy.
    """
    if path is None:
        parent = Path("runs").absolute()
        nearest = next(place for place in (parent, *parent.parents) if os.path.exists(place))
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            reason = "may not be written" if nearest.is_dir() else "is not a directory"
            raise RunFolderError(
                f"the folder {parent} cannot be written: {nearest} {reason}; set run.dir to another folder"
            )
        return
    try:
        path = path.expanduser()
        if "\0" in str(path):
            raise RunFolderError(
                f"run.dir {str(path)!r} cannot be written: a NUL character; choose another run.dir"
            )
        if path.exists() and not path.is_dir():
            raise RunFolderError(f"run.dir {path} is a file; choose another run.dir")
        nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            reason = "may not be written" if nearest.is_dir() else "is not a directory"
            raise RunFolderError(
                f"run.dir {path} cannot be written: {nearest} {reason}; choose another run.dir"
            )
        if not path.is_dir() or _holds_nothing(path):
            return
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunFolderError(
            f"run.dir {str(path)[:200]} cannot be written: {reason}; choose another run.dir"
        ) from error
    if not overwrite:
        raise RunFolderError(
            f"run.dir {path} exists and is not empty; choose another run.dir, or set run.overwrite=true to replace "
            "the run in it"
        )
    refuse_links(path, FILES)
    try:
        read_manifest(RunFolder(path))
    except RunFolderError as error:
        raise RunFolderError(
            f"run.overwrite is true, but run.dir {path} holds files and no run of groupwise ({error}); nothing was "
            "removed; choose another run.dir"
        ) from None


def write_manifest(
    folder: RunFolder,
    *,
    seed: int,
    command: Sequence[str],
    data_files: Mapping[str, Path],
    data_rows: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    python_rewards: Sequence[str] = (),
    python_rows: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    notices: Sequence[str] = (),
) -> None:
    """Write `manifest.json`: versions, platform, seed, command, the hashes of the data and what was told at the start.

    Args:
        folder: of the run.
        seed: of the run.
        command: the words that started it.
        data_files: the file of each source that is one, by the source's name.
        data_rows: the rows of each source that is no file, such as a function, by its name.
        python_rewards: labels of the rewards given as Python functions.
        python_rows: the rows given in Python, by `train` and `held_out`; what JSON cannot hold counts by its `repr`.
        notices: the sentences that people were told: what is in force.

    Raises:
        RunFolderError: a data file cannot be read, or the manifest not written.
    """
    manifest = {
        "groupwise": _version("groupwise"),
        "versions": versions(),
        "platform": {"system": platform.platform(), "machine": platform.machine(), "cores": _cores()},
        "seed": seed,
        "command": [without_secrets(word) for word in command],
        **fingerprints(data_files, data_rows, python_rewards, python_rows),
        "notices": list(notices),
        "resumed": [],
    }
    _put_manifest(folder, manifest)


def add_resumption(folder: RunFolder, *, at: str, command: Sequence[str], changed: Mapping[str, Any]) -> None:
    """Note in the manifest that the run was taken up again.

    Args:
        folder: of the run.
        at: the checkpoint's folder.
        command: the words that did it.
        changed: settings by key, with the value before and the new one.

    Raises:
        RunFolderError: the manifest cannot be read or written.
    """
    manifest = read_manifest(folder)
    words = [without_secrets(word) for word in command]
    entry = {"at": at, "command": words, "versions": versions(), "changed": dict(changed)}
    _put_manifest(folder, {**manifest, "resumed": [*manifest.get("resumed", ()), entry]})


def _put_manifest(folder: RunFolder, manifest: Mapping[str, Any]) -> None:
    text = json.dumps(manifest, indent=2) + "\n"
    replace_file(folder.manifest_file, lambda file: file.write(text.encode()))


def versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that numbers depend on; None for one not installed."""
    return {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}}


def fingerprints(
    data_files: Mapping[str, Path],
    data_rows: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    python_rewards: Sequence[str] = (),
    python_rows: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> dict[str, Any]:
    """The manifest's fields `data`, `python_rewards` and `python_rows`; see `write_manifest`, also for errors."""
    return {
        "data": {name: _fingerprint(path) for name, path in data_files.items()}
        | {name: _rows_fingerprint(rows) for name, rows in (data_rows or {}).items()},
        "python_rewards": list(python_rewards),
        "python_rows": {name: _rows_fingerprint(rows) for name, rows in (python_rows or {}).items()},
    }


def read_manifest(folder: RunFolder) -> dict[str, Any]:
    """The fields of MANIFEST.

    Whatever is done with a run folder begins here, so this is where links that lead out of it are refused.

    Raises:
        RunFolderError: the folder has no manifest, it is not one of ours, or something in it is elsewhere.
    """
    path = folder.manifest_file
    refuse_links(folder.path, FILES)
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise RunFolderError(f"{folder.path} is not a run folder: it has no manifest.json") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunFolderError(f"{path} cannot be read: {error}") from None
    if not isinstance(manifest, dict) or "groupwise" not in manifest:
        raise RunFolderError(f"{path} was not written by groupwise, so {folder.path} is not a run folder")
    kinds = {"versions": dict, "data": dict, "python_rewards": list, "python_rows": dict, "resumed": list}
    wrong = [name for name, kind in kinds.items() if not isinstance(manifest.get(name, kind()), kind)]
    if wrong or not all(
        isinstance(each, dict) and {"at", "changed"} <= set(each) for each in manifest.get("resumed", [])
    ):
        raise RunFolderError(
            f"{path} is damaged: its field {(wrong or ['resumed'])[0]} is not as it was written"
        )
    return manifest


def _dated(parent: Path) -> Path:
    """A new folder named by the local date and time; a number is added when two runs start in one second."""
    parent.mkdir(parents=True, exist_ok=True)
    name = f"{datetime.now():%Y-%m-%d_%H-%M-%S}"
    number = 1
    while True:
        path = parent / (name if number == 1 else f"{name}_{number}")
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        else:
            return path


def _holds_nothing(path: Path) -> bool:
    """True for an empty folder, and for one whose run was killed before its manifest was written."""
    return all(
        entry.name in (".lock", ".probe.partial")
        or (entry.name.startswith(".manifest.json.") and entry.name.endswith(".partial"))
        or (
            f"{entry.name}/" in FILES
            and entry.is_dir()
            and not entry.is_symlink()
            and not any(entry.iterdir())
        )
        for entry in path.iterdir()
    )


def _make_room(path: Path) -> None:
    """Remove what groupwise wrote."""
    for pattern in _OURS:
        for file in list(path.glob(pattern)):
            if file.is_file() or file.is_symlink():
                file.unlink()
    for partial in path.glob("checkpoints/.step-*.partial"):
        shutil.rmtree(partial)  # of a process that was killed
    for pattern in (*_FOLDERS, *(name for name in FILES if name.endswith("/"))):
        for folder in list(path.glob(pattern)):
            if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
                folder.rmdir()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _rows_fingerprint(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    digest = hashlib.sha256()
    for row in rows:
        try:
            text = json.dumps(dict(row), default=repr)
        except (TypeError, ValueError):  # keys that JSON has not, or a value that holds itself
            text = repr(row)
        digest.update(f"{text}\n".encode(errors="backslashreplace"))
    return {"rows": len(rows), "sha256": digest.hexdigest()}


def _fingerprint(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"sha256": digest, "bytes": path.stat().st_size}
    except OSError as error:
        raise RunFolderError(f"the data file {path} cannot be read: {error.strerror or error}") from error
