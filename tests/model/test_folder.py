import os
from pathlib import Path

import pytest

from groupwise.model.folder import replace_folder


def _names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_made_with_its_parents_and_files_readable_like_the_folder(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "inner").mkdir()
        (folder / "inner" / "a").write_text("1")
        (folder / "inner" / "a").chmod(0o600)

    old = os.umask(0o022)
    try:
        replace_folder(tmp_path / "up" / "here", write)
    finally:
        os.umask(old)
    assert (tmp_path / "up" / "here" / "inner" / "a").read_text() == "1"
    assert (tmp_path / "up" / "here" / "inner" / "a").stat().st_mode & 0o777 == 0o644
    assert _names(tmp_path / "up") == ["here"]


def test_an_older_folder_is_replaced_whole(tmp_path: Path) -> None:
    replace_folder(tmp_path / "here", lambda folder: (folder / "old").write_text("1"))
    replace_folder(tmp_path / "here", lambda folder: (folder / "new").write_text("2"))
    assert _names(tmp_path / "here") == ["new"]
    assert _names(tmp_path) == ["here"]


def test_a_failure_leaves_the_older_folder_and_nothing_else(tmp_path: Path) -> None:
    replace_folder(tmp_path / "here", lambda folder: (folder / "old").write_text("1"))

    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace_folder(tmp_path / "here", fail)
    assert _names(tmp_path / "here") == ["old"]
    assert _names(tmp_path) == ["here"]


def test_a_failing_last_step_puts_the_older_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_folder(tmp_path / "here", lambda folder: (folder / "old").write_text("1"))
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.name.endswith(f".{os.getpid()}.partial"):
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="no"):
        replace_folder(tmp_path / "here", lambda folder: (folder / "new").write_text("2"))
    assert _names(tmp_path / "here") == ["old"]
    assert _names(tmp_path) == ["here"]
