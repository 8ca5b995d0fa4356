"""Measurements outlive an interruption, and those of another setting are not mixed in."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import record
from benchmarks.record import Record, every


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")


def test_measurements_are_there_again_and_go_on() -> None:
    first = Record("a-b", {"threads": 2, "sizes": (1, 2)})
    first.add({"seconds": 1.5})
    again = Record("a-b", {"threads": 2, "sizes": (1, 2)})
    assert again.runs == [{"seconds": 1.5}]
    again.add({"seconds": 2.5})
    assert [(h["name"], [r["seconds"] for r in h["runs"]]) for h in every("a-", again.path.parent)] == [
        ("a-b", [1.5, 2.5])
    ]
    assert not list(again.path.parent.glob("*.part"))
    assert Record("a-b", {"threads": 2, "sizes": (1, 2)}, fresh=True).runs == []


def test_another_setting_begins_anew(capsys: pytest.CaptureFixture[str]) -> None:
    Record("a", {"threads": 2, "source": "x"}).add({"seconds": 1.5})
    assert Record("a", {"threads": 2, "source": "y"}).runs == []
    assert "a.json was measured with other source: beginning anew" in capsys.readouterr().out
    assert Record("a", {"threads": 2, "source": "x", "more": 1}).runs == []
    assert Record("a", {"threads": 2}).runs == []
