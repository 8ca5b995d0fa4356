"""Finding a checkpoint that is whole: every way in which one can be damaged, and cases g06."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from groupwise.checkpoint import manifest
from groupwise.checkpoint.manifest import NAME, Position
from groupwise.checkpoint.restore import find_checkpoint, read_parts, restore
from groupwise.checkpoint.save import STATE, save_checkpoint
from groupwise.checkpoint.weights import ADAPTER, WEIGHTS
from groupwise.errors import CheckpointError
from groupwise.model.load import Policy
from tests.checkpoint.test_weights import lora_policy

PARTS: dict[str, Any] = {"order": {"epoch": 1, "batch": 2}, "updates": {"updates": 7, "bad_in_a_row": 0}}


class Part:
    def __init__(self) -> None:
        self.held: dict[str, Any] = {}

    def state(self) -> dict[str, Any]:
        return self.held

    def restore(self, state: Any) -> None:
        self.held = dict(state)


def parts() -> dict[str, Part]:
    return {"order": Part(), "updates": Part()}


@pytest.fixture
def root(policy: Policy, tmp_path: Path) -> Path:
    for step in (9, 10, 100):
        save_checkpoint(tmp_path, Position(step), policy=policy, parts=PARTS)
    return tmp_path


def flipped(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_the_last_one_is_found_and_read(root: Path, policy: Policy) -> None:
    said: list[str] = []
    found = find_checkpoint(root, say=said.append)
    assert (found.folder.name, found.position, said) == ("step-000100", Position(100), [])
    assert read_parts(found) == PARTS
    mine = parts()
    restore(found, read_parts(found), policy=policy, parts=mine)
    assert {name: part.held for name, part in mine.items()} == PARTS


@pytest.mark.parametrize("file", [WEIGHTS, STATE, NAME])
@pytest.mark.parametrize(
    "damage", ["first byte", "byte in the middle", "last byte", "cut short", "empty", "missing"]
)
def test_a_damaged_one_is_passed_over_and_told(root: Path, file: str, damage: str) -> None:
    path = root / "step-000100" / file
    size = path.stat().st_size
    match damage:
        case "first byte":
            flipped(path, 0)
        case "byte in the middle":
            flipped(path, size // 2)
        case "last byte":
            flipped(path, size - 2 if file == NAME else size - 1)  # a manifest ends in a line break
        case "cut short":
            path.write_bytes(path.read_bytes()[:-3])
        case "empty":
            path.write_bytes(b"")
        case "missing":
            path.unlink()
    said: list[str] = []
    found = find_checkpoint(root, say=said.append)
    assert found.folder.name == "step-000010"
    assert found.damaged == (root / "step-000100",)
    assert len(said) == 1
    assert said[0].startswith("the checkpoint of step 100 is passed over: ")
    assert file in said[0]


def test_every_byte_of_the_manifest_counts(root: Path) -> None:
    path = root / "step-000100" / NAME
    whole = path.read_bytes()
    for place in range(0, len(whole) - 1, 7):
        flipped(path, place)
        with pytest.raises(CheckpointError):
            manifest.verify(root / "step-000100")
        path.write_bytes(whole)
    manifest.verify(root / "step-000100")


def test_a_damaged_adapter_is_passed_over(tmp_path: Path) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, Position(step), policy=lora_policy(), parts=PARTS)
    for file in (tmp_path / "step-000002" / ADAPTER).iterdir():
        whole = file.read_bytes()
        flipped(file, len(whole) // 2)
        said: list[str] = []
        assert find_checkpoint(tmp_path, say=said.append).position == Position(1)
        assert file.name in said[0]
        file.write_bytes(whole)


def test_with_none_that_is_whole_nothing_starts_afresh(root: Path) -> None:
    for folder in root.iterdir():
        (folder / STATE).unlink()
    with pytest.raises(CheckpointError, match=r"none of the 3 checkpoints in .* is whole"):
        find_checkpoint(root, say=lambda sentence: None)


def test_an_empty_folder_and_none_at_all(tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(CheckpointError, match="holds no checkpoint, so there is nothing to resume from"):
            find_checkpoint(place, say=lambda sentence: None)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("step-000101", "did you mean step-000100"),
        ("latest", "there are step-000009, step-000010, step-000100"),
        ("../step-000100", "no checkpoint '../step-000100'"),
        ("/etc", "no checkpoint '/etc'"),
        ("", "no checkpoint ''"),
    ],
)
def test_a_name_that_is_not_there_is_an_error(root: Path, name: str, says: str) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint") as raised:
        find_checkpoint(root, name, say=lambda sentence: None)
    assert says in str(raised.value)


def test_a_named_one_that_is_damaged_is_an_error(root: Path) -> None:
    flipped(root / "step-000010" / WEIGHTS, 500)
    assert find_checkpoint(root, "step-000009", say=lambda sentence: None).position == Position(9)
    with pytest.raises(CheckpointError, match="name another checkpoint"):
        find_checkpoint(root, "step-000010", say=lambda sentence: None)


def test_a_renamed_one_is_not_taken_for_another_step(root: Path) -> None:
    shutil.move(root / "step-000100", root / "step-000200")
    said: list[str] = []
    assert find_checkpoint(root, say=said.append).position == Position(10)
    assert "its folder was renamed" in said[0]


def test_a_manifest_that_points_outside_is_refused(root: Path) -> None:
    for outside in ("../../secret", "/etc/hostname"):
        path = root / "step-000100" / NAME
        content = json.loads(path.read_text())
        content.pop("sha256")
        content["files"] = {outside: {"bytes": 1, "sha256": "0"}}
        path.write_text(json.dumps({**content, "sha256": manifest._own_digest(content)}))
        with pytest.raises(CheckpointError, match="outside the checkpoint"):
            manifest.verify(root / "step-000100")


def test_a_link_that_leads_outside_is_refused(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("elsewhere") / WEIGHTS
    path = root / "step-000100" / WEIGHTS
    shutil.move(path, place)
    path.symlink_to(place)
    with pytest.raises(CheckpointError, match="outside the checkpoint"):
        manifest.verify(root / "step-000100")


def test_parts_that_do_not_match_are_named(root: Path, policy: Policy) -> None:
    found = find_checkpoint(root, say=lambda sentence: None)
    states = read_parts(found)
    with pytest.raises(CheckpointError, match="holds no state of critic"):
        restore(found, states, policy=policy, parts={**parts(), "critic": Part()})
    with pytest.raises(CheckpointError, match="the state of updates, which this run has not"):
        restore(found, states, policy=policy, parts={"order": Part()})


def test_a_state_with_code_in_it_is_not_run(root: Path) -> None:
    import torch

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (root / "ran",))

    found = find_checkpoint(root, say=lambda sentence: None)
    torch.save({"order": Evil()}, found.folder / STATE)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_parts(found)
    assert not (root / "ran").exists()
