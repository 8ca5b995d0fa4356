"""A run on a disk that is full, fills up, or may only be read: a sentence, and nothing that was written is lost."""

import logging
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import groupwise
from groupwise.checkpoint.manifest import verify
from groupwise.checkpoint.save import saved_checkpoints
from groupwise.errors import CheckpointError, GroupwiseError, RunFolderError
from groupwise.records.metrics_file import read_metrics
from tests.end_to_end.interrupted import HELD_OUT, ROWS, differing, left_behind, restless, tree

GIVEN: dict[str, Any] = {"train": ROWS, "held_out": HELD_OUT}
BETWEEN_STEPS: dict[str, Any] = {"checkpoint": {"every_steps": 1, "every_minutes": None}}


class Events:
    """A reward with something that happens at one of its calls."""

    __name__ = "restless"

    def __init__(self, **happens: Callable[[], Any]) -> None:
        self.calls, self.happens = 0, happens

    def __call__(self, completions: list[str], **columns: Any) -> list[float]:
        self.calls += 1
        self.happens.get(f"at{self.calls}", lambda: None)()
        return restless(completions)


def fill(disk: Path, leave: int) -> None:
    filler = disk / "filler"
    filler.write_bytes(b"")
    filler.write_bytes(bytes(max(0, shutil.disk_usage(disk).free - leave)))


def test_without_space_for_a_checkpoint_the_run_does_not_start(small_disk: Callable[..., Path]) -> None:
    disk = small_disk(size=2**20)
    with pytest.raises(CheckpointError, match=r"a checkpoint takes \d MB, and .* has \d MB left") as raised:
        groupwise.train(tree(disk / "run"), rewards=[restless], **GIVEN)
    assert "checkpoint.save=false" in str(raised.value)


def test_a_disk_that_fills_up_costs_a_checkpoint_and_not_the_run(
    small_disk: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    groupwise.train(tree(tmp_path / "whole", **BETWEEN_STEPS), rewards=[restless], **GIVEN)
    disk = small_disk(size=16 * 2**20)
    reward = Events(at3=lambda: fill(disk, leave=500_000), at5=(disk / "filler").unlink)
    with caplog.at_level(logging.WARNING):
        groupwise.train(tree(disk / "run", **BETWEEN_STEPS), rewards=[reward], **GIVEN)
    assert "(the run goes on; its last checkpoint is that of step 1)" in caplog.text
    assert differing(left_behind(disk / "run"), left_behind(tmp_path / "whole")) == []
    assert [position.step for position, _ in saved_checkpoints(disk / "run" / "checkpoints")][-1] == 5


def test_a_disk_that_is_quite_full_ends_the_run_which_goes_on_when_there_is_space(
    small_disk: Callable[..., Path], tmp_path: Path
) -> None:
    groupwise.train(tree(tmp_path / "whole", **BETWEEN_STEPS), rewards=[restless], **GIVEN)
    disk = small_disk(size=16 * 2**20)
    folder = disk / "run"
    with pytest.raises(RunFolderError, match=r"cannot be written: No space left on device"):
        groupwise.train(
            tree(folder, **BETWEEN_STEPS), rewards=[Events(at4=lambda: fill(disk, leave=0))], **GIVEN
        )
    assert [line["step"] for line in read_metrics(folder / "metrics.jsonl")] == [0, 1]
    for _, path in saved_checkpoints(folder / "checkpoints"):
        verify(path)
    # Going on needs space too, and says so without damage.
    with pytest.raises(GroupwiseError, match=r"No space left on device|MB left"):
        groupwise.train(resume=folder, rewards=[restless], **GIVEN)
    (disk / "filler").unlink()
    groupwise.train(resume=folder, rewards=[restless], **GIVEN)
    assert differing(left_behind(folder), left_behind(tmp_path / "whole")) == []


def test_a_disk_that_becomes_read_only(small_disk: Callable[..., Path]) -> None:
    disk = small_disk(size=16 * 2**20)
    folder = disk / "run"

    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with pytest.raises(RunFolderError, match="may not be written"):
        groupwise.train(tree(folder), rewards=[restless], **GIVEN)
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    groupwise.train(tree(folder), rewards=[restless], **GIVEN)
    before = left_behind(folder)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with pytest.raises(GroupwiseError, match="Read-only file system"):
        groupwise.train(resume=folder, rewards=[restless], **GIVEN)
    assert differing(left_behind(folder), before) == []


def test_a_checkpoint_of_another_model(tmp_path: Path) -> None:
    from groupwise.model.tiny import write_tiny

    write_tiny(tmp_path / "model")
    folder = tmp_path / "run"
    sections: dict[str, Any] = {"model": {"name": str(tmp_path / "model")}, **BETWEEN_STEPS}
    groupwise.train(tree(folder, **sections), rewards=[restless], **GIVEN)
    before = left_behind(folder)
    shutil.rmtree(tmp_path / "model")
    write_tiny(tmp_path / "model", hidden=32)
    with pytest.raises(CheckpointError, match="is of another model"):
        groupwise.train(resume=folder, rewards=[restless], **GIVEN)
    assert differing(left_behind(folder), before) == []
