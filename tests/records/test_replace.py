from pathlib import Path
from typing import BinaryIO

import pytest

from groupwise.errors import RunFolderError
from groupwise.records.replace import replace_file


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def write(file: BinaryIO) -> None:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"

    replace_file(path, write)
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_what_interrupts_the_writing_is_passed_on_and_changes_nothing(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def write(file: BinaryIO) -> None:
        file.write(b"half")
        raise error

    with pytest.raises(error):
        replace_file(path, write)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_the_system_refuses_is_said_with_the_place(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="none/f cannot be written: No such file or directory"):
        replace_file(tmp_path / "none" / "f", lambda file: file.write(b"x"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(RunFolderError, match="folder cannot be written"):
        replace_file(tmp_path / "folder", lambda file: file.write(b"x"))
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
