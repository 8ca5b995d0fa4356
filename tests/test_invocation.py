"""The commands that verbs advise are those that work in the shell that started them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from groupwise.invocation import command


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    for name in ("groupwise", "tensorboard", "python3"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    return folder


def test_by_its_path_where_the_environment_is_not_activated(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for started in (".venv/bin/groupwise", str(programs / "groupwise")):
        monkeypatch.setattr(sys, "argv", [started, "train"])
        assert command() == started
        assert command("tensorboard") == started.replace("groupwise", "tensorboard")
    # Another program of that name is found first: the bare word would start that one.
    other = programs.parent / "other"
    other.mkdir()
    (other / "groupwise").write_text("#!/bin/sh\n")
    (other / "groupwise").chmod(0o755)
    monkeypatch.setenv("PATH", str(other))
    assert command() == str(programs / "groupwise")


def test_by_its_name_where_the_shell_finds_it(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(programs))
    for started in (".venv/bin/groupwise", str(programs / "groupwise")):
        monkeypatch.setattr(sys, "argv", [started])
        assert (command(), command("tensorboard")) == ("groupwise", "tensorboard")


def test_as_a_module_of_python(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/groupwise/__main__.py"])
    monkeypatch.setattr(sys, "executable", str(programs / "python3"))
    assert command() == f"{programs / 'python3'} -m groupwise"
    monkeypatch.setenv("PATH", str(programs))
    assert command() == "python3 -m groupwise"
    assert command("tensorboard") == "python3 -m tensorboard.main"


@pytest.mark.parametrize("started", ["/usr/bin/pytest", "/lib/pytest/__main__.py", "-c", ""])
def test_from_another_program(started: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [started])
    assert command() == "groupwise"
    assert command("tensorboard") == "tensorboard"
