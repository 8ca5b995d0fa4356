"""Writing checkpoints and keeping the right ones: cases g06 and what a full or unwritable disk does."""

import json
import logging
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.checkpoint import save
from groupwise.checkpoint.manifest import NAME, Position, read_manifest, verify, write_manifest
from groupwise.checkpoint.save import (
    STATE,
    remove_leftovers,
    rotate,
    save_checkpoint,
    saved_checkpoints,
    space_needed,
)
from groupwise.checkpoint.weights import WEIGHTS
from groupwise.errors import CheckpointError, TrainingError
from groupwise.model.load import Policy

PARTS: dict[str, Any] = {"order": {"epoch": 1}, "noise": {"words": np.arange(1000)}}


def bare(root: Path, *positions: Position, metric: float | None = None, healthy: bool = True) -> None:
    """Checkpoints of nothing but a manifest."""
    for position in positions:
        folder = root / position.folder
        folder.mkdir(parents=True)
        write_manifest(folder, version="0", metric=metric, healthy=healthy, position=position)


def names(root: Path) -> list[str]:
    return [path.name for _, path in saved_checkpoints(root)]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Inside, writing beyond so many bytes of a file fails, as it does on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_is_in_it(policy: Policy, tmp_path: Path) -> None:
    position = Position(3)
    folder = save_checkpoint(tmp_path, position, policy=policy, parts=PARTS, metric=0.5, healthy=False)
    assert folder == tmp_path / "step-000003"
    assert sorted(path.name for path in folder.iterdir()) == [NAME, STATE, WEIGHTS]
    manifest = verify(folder)
    assert (manifest.position, manifest.metric, manifest.healthy) == (position, 0.5, False)
    assert set(manifest.files) == {STATE, WEIGHTS}
    assert torch.load(folder / STATE, weights_only=True)["order"] == {"epoch": 1}
    # One of the same step takes its place.
    save_checkpoint(tmp_path, position, policy=None, parts={"order": {"epoch": 2}})
    assert torch.load(folder / STATE, weights_only=True)["order"] == {"epoch": 2}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000003"]


@pytest.mark.parametrize(
    ("position", "folder", "said"),
    [
        (Position(0), "step-000000", "the start"),
        (Position(12), "step-000012", "step 12"),
        (Position(12, 1), "step-000012-update-0001", "step 13 after 1 update"),
        (Position(1234567, 20000), "step-1234567-update-20000", "step 1234568 after 20000 updates"),
    ],
)
def test_positions_and_their_folders(position: Position, folder: str, said: str) -> None:
    assert position.folder == folder
    assert Position.of(folder) == position
    assert str(position) == said


def test_other_names_are_no_positions() -> None:
    for name in (
        "step-12",
        "step-000012.damaged",
        ".step-000012.7.partial",
        "step-000012-update-1",
        "best",
        "000012",
    ):
        assert Position.of(name) is None


def test_nine_comes_before_ten_before_a_hundred_and_updates_between(tmp_path: Path) -> None:
    bare(
        tmp_path,
        Position(100),
        Position(9),
        Position(10),
        Position(9, 2),
        Position(9, 10),
        Position(1_000_000),
    )
    assert names(tmp_path) == [
        "step-000009",
        "step-000009-update-0002",
        "step-000009-update-0010",
        "step-000010",
        "step-000100",
        "step-1000000",
    ]


def test_the_last_two_stay(tmp_path: Path) -> None:
    bare(tmp_path, Position(9), Position(10), Position(100))
    (tmp_path / "mine").mkdir()
    rotate(tmp_path, keep_last=2)
    assert names(tmp_path) == ["step-000010", "step-000100"]
    assert (tmp_path / "mine").is_dir()


def test_the_best_and_the_last_healthy_stay_too(tmp_path: Path) -> None:
    for step, metric, healthy in (
        (1, 0.2, True),
        (2, 0.9, True),
        (3, 0.9, True),
        (4, None, True),
        (5, 0.1, False),
    ):
        bare(tmp_path, Position(step), metric=metric, healthy=healthy)
    bare(tmp_path, Position(6), healthy=False)
    rotate(tmp_path, keep_last=1)
    assert names(tmp_path) == [
        "step-000002",
        "step-000004",
        "step-000006",
    ]  # best (the earlier), healthy, last
    rotate(tmp_path, keep_last=1)
    assert len(names(tmp_path)) == 3


def test_one_whose_manifest_is_damaged_is_neither_best_nor_healthy(tmp_path: Path) -> None:
    bare(tmp_path, Position(1), metric=0.9)
    bare(tmp_path, Position(2), Position(3), metric=0.1)
    (tmp_path / "step-000001" / NAME).write_text("{")
    rotate(tmp_path, keep_last=1)
    assert names(tmp_path) == ["step-000002", "step-000003"]


def test_what_cannot_be_removed_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bare(tmp_path, Position(9), Position(10), Position(100))

    def refused(path: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refused)
    with caplog.at_level(logging.WARNING):
        rotate(tmp_path, keep_last=2)
    assert names(tmp_path) == ["step-000009", "step-000010", "step-000100"]
    assert "step-000009 is no longer wanted but cannot be removed: Permission denied" in caplog.text


def test_half_removed_and_half_written_ones_are_cleared_away(tmp_path: Path) -> None:
    for name in (".step-000003.17.partial", ".step-000002.17.old.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / WEIGHTS).write_bytes(b"half")
    (tmp_path / ".mine").mkdir()
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".mine"]


@pytest.mark.parametrize("size", [0, 1000, 30_000])
def test_a_file_that_cannot_grow(policy: Policy, tmp_path: Path, size: int) -> None:
    save_checkpoint(tmp_path, Position(1), policy=policy, parts=PARTS)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with (
        largest_file(size),
        pytest.raises(CheckpointError, match="the checkpoint of step 2 cannot be written"),
    ):
        save_checkpoint(tmp_path, Position(2), policy=policy, parts=PARTS)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    verify(tmp_path / "step-000001")


def test_a_disk_without_the_space_is_told_before_anything_is_written(
    policy: Policy, small_disk: Callable[..., Path]
) -> None:
    root = small_disk(size=2**20)
    with pytest.raises(
        CheckpointError, match=r"a checkpoint takes \d MB, and .* has 1 MB left; free some space"
    ):
        save_checkpoint(root, Position(1), policy=policy, parts=PARTS)
    assert list(root.iterdir()) == []


def test_a_disk_that_fills_up_while_writing(
    policy: Policy, small_disk: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = small_disk(size=2 * 2**20)
    save_checkpoint(root, Position(1), policy=policy, parts=PARTS)
    (root / "other").write_bytes(bytes(shutil.disk_usage(root).free - 100_000))
    monkeypatch.setattr(save, "refuse_without_space", lambda *given: None)  # another process was faster
    with pytest.raises(CheckpointError, match="step 2 cannot be written"):
        save_checkpoint(root, Position(2), policy=policy, parts=PARTS)
    assert sorted(path.name for path in root.iterdir()) == ["other", "step-000001"]
    verify(root / "step-000001")


def test_a_folder_that_may_only_be_read(policy: Policy, small_disk: Callable[..., Path]) -> None:
    root = small_disk(size=8 * 2**20)
    save_checkpoint(root, Position(1), policy=policy, parts=PARTS)
    subprocess.run(["mount", "-o", "remount,ro", root], check=True)
    with pytest.raises(CheckpointError, match="Read-only file system"):
        save_checkpoint(root, Position(2), policy=policy, parts=PARTS)
    verify(root / "step-000001")


def test_the_space_is_counted_with_the_optimisers(policy: Policy) -> None:
    weights = sum(p.nbytes for p in policy.model.parameters())
    assert 3 * weights <= space_needed(policy) <= 3 * weights + 2**21


def test_weights_that_are_not_finite_leave_nothing_behind(policy: Policy, tmp_path: Path) -> None:
    with torch.no_grad():
        next(policy.model.parameters())[0] = torch.nan
    with pytest.raises(TrainingError, match="NaN or infinity"):
        save_checkpoint(tmp_path, Position(2), policy=policy, parts=PARTS)
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_of_a_newer_format_is_not_guessed_at(tmp_path: Path) -> None:
    bare(tmp_path, Position(1))
    path = tmp_path / "step-000001" / NAME
    from groupwise.checkpoint import manifest

    content = json.loads(path.read_text())
    content["format"] = 2
    content.pop("sha256")
    path.write_text(json.dumps({**content, "sha256": manifest._own_digest(content)}))
    with pytest.raises(CheckpointError, match="format 2, and this groupwise reads up to 1"):
        read_manifest(tmp_path / "step-000001")
