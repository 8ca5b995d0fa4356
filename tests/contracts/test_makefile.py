"""What the first commands of the README do, with programs of no effect in place of the real ones."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make here")


def make(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", "-C", str(ROOT), *words], capture_output=True, text=True, check=False, env=environment
    )


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment that counts as installed, whose `groupwise` says what it was asked for."""
    program = tmp_path / "bin" / "groupwise"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "asked: $*"\n[ "$1" != "$FAILS" ]\n')
    program.chmod(0o755)
    (tmp_path / ".installed").touch()
    return tmp_path


def test_the_demo_ends_with_its_report(venv: Path) -> None:
    done = make("demo", f"VENV={venv}")
    assert done.returncode == 0, done.stderr
    asked = re.findall(r"^asked: (.*)$", done.stdout, re.M)
    (run,) = re.findall(r"run\.dir=(runs/demo-\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d)$", asked[0])
    assert asked == [f"train examples/first_run/config.yaml run.dir={run}", f"report {run}"]
    said = [line for line in done.stdout.splitlines() if not line.startswith("make")]
    assert f"{run}/report.html in a browser" in said[-1]


def test_a_demo_that_is_interrupted_has_no_report(venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILS", "train")
    done = make("demo", f"VENV={venv}")
    assert done.returncode != 0
    assert "asked: report" not in done.stdout
    assert "browser" not in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("target", ["demo", "test", "install", "venv-trl", "venv-vllm"])
def test_what_installs_says_before_what_and_how_much(target: str, tmp_path: Path) -> None:
    names = ("VENV", "TRL_VENV", "VLLM_VENV")
    done = make("-n", target, *(f"{name}={tmp_path / name}" for name in names))
    assert done.returncode == 0, done.stderr
    before, pip, _ = done.stdout.partition(" -m pip install")
    assert pip
    assert re.search(r"^echo .*Installing .*once", before, re.M)
    assert re.search(r"[23]\.?\d? GB on disk|1\.5 GB on disk", before)
    assert "minutes" in before
