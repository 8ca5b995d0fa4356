from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from groupwise.errors import DataError
from groupwise.workbench.outfile import replacing


def test_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with replacing(path) as file:
        file.write("first")
        assert not path.exists()
    assert path.read_text() == "first"
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(f"second {1 / 0}")
    assert path.read_text() == "first"
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("name", ["", "no/out", "x" * 300])
def test_places_that_cannot_be_written_are_named_at_once(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--output"), replacing(tmp_path / name):
        pytest.fail("the work began")


def test_of_a_link_the_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "target", tmp_path / "link"
    link.symlink_to(target)
    for text in ("the target is new", "the target is old"):
        with replacing(link) as file:
            file.write(text)
        assert link.is_symlink()
        assert target.read_text() == text
    assert [each.name for each in target.parent.iterdir()] == ["target"]
    (tmp_path / "ring").symlink_to(tmp_path / "ring")
    with pytest.raises(DataError, match="cannot be written"), replacing(tmp_path / "ring"):
        pytest.fail("the work began")


def test_a_pipe_is_written_into_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(path.read_text()), daemon=True)
    reader.start()
    with replacing(path) as file:
        file.write("through")
    reader.join(timeout=10)
    assert got == ["through"]
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert [each.name for each in tmp_path.iterdir()] == ["pipe"]


def test_a_dash_is_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with replacing(Path("-")) as file:
        file.write("shown")
    assert capsys.readouterr().out == "shown"
    assert not list(tmp_path.iterdir())


def test_an_input_is_not_replaced_by_whatever_name(tmp_path: Path) -> None:
    data, missing = tmp_path / "data", tmp_path / "missing"
    data.write_text("mine")
    (tmp_path / "link").symlink_to(data)
    os.link(data, tmp_path / "same")
    for name in ("data", "link", "same"):
        with (
            pytest.raises(DataError, match=f"{name} is .*data, which is read here; name another file"),
            replacing(tmp_path / name, inputs=[missing, data]),
        ):
            pytest.fail("the work began")
    assert data.read_text() == "mine"
    with replacing(missing, inputs=[missing, data]) as file:
        file.write("new")
    assert missing.read_text() == "new"


def test_permissions_stay(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("before")
    path.chmod(0o640)
    with replacing(path) as file:
        file.write("after")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
