"""Our losses against the installed TRL's, in a process of its own, since TRL warns when it is imported."""

import importlib.util
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "parity"


def python_with_trl() -> str | None:
    """This interpreter, or that of the environment that `make parity` makes."""
    if importlib.util.find_spec("trl") is not None:
        return sys.executable
    python = Path(os.environ.get("GROUPWISE_TRL", ROOT / ".venv-trl")) / "bin" / "python"
    return str(python) if python.is_file() else None


@pytest.mark.skipif(
    python_with_trl() is None, reason="TRL is not installed; `make parity` installs it and compares"
)
def test_every_case_is_as_it_says() -> None:
    python = python_with_trl()
    assert python is not None
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [python, str(FOLDER / "compare.py")], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("| equal |") >= 14


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("compare_with_trl", FOLDER / "compare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_written_results_are_of_all_cases_and_as_expected(compare: ModuleType) -> None:
    text = (FOLDER / "RESULTS.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [case.name for case in compare.CASES]
    assert "UNEXPECTED" not in text
    for row, case in zip(rows, compare.CASES, strict=True):
        assert row.endswith("| equal |") == (case.differs is None)
        loss_gap, gradient_gap = (float(cell) for cell in row.split(" | ")[3:5])
        assert (max(loss_gap, gradient_gap) <= 1e-8) == (case.differs is None)


def test_without_trl_it_says_what_to_install(
    compare: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "trl", None)
    monkeypatch.setattr(
        logging, "disable", lambda level: None
    )  # for the process, of which there are more tests
    assert compare.main([]) == 2
    assert capsys.readouterr().out.startswith("TRL is not installed")
