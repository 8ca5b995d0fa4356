import json
import math
from pathlib import Path

import pytest

from groupwise.errors import RunFolderError
from groupwise.records import Finding, Severity
from groupwise.records.health_file import FIELDS, Fault, Happening, HealthEvent, HealthFile, read_findings


def event(step: int, value: float = 0.5) -> HealthEvent:
    return HealthEvent(
        step=step,
        event=Happening.BEGINS,
        finding=Finding(
            check="kl_runaway",
            kind="limit",
            severity=Severity.CRITICAL,
            first_step=step - 1,
            last_step=step,
            summary="KL is high",
            evidence={"kl/token_mean": value, "limit": 0.8},
            causes=("one", "two"),
            remedies=("three",),
        ),
    )


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "health.jsonl"
    with HealthFile(path) as file:
        file.append_event(event(3))
        file.append(5, Fault(source="gradient", sentence="it is infinite"))
        file.append_event(event(7, math.inf))  # strict JSON all the same
    assert read_findings(path) == [event(3), event(7, math.inf)]
    line = json.loads(path.read_text().splitlines()[2])
    assert line["finding"]["evidence"]["kl/token_mean"] == "Infinity"
    assert set(line) <= set(FIELDS)


def test_a_torn_last_line_is_left_out_and_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "health.jsonl"
    with HealthFile(path) as file:
        file.append_event(event(3))
        file.append_event(event(4))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.warns(UserWarning, match="line 2 was cut short"):
        assert read_findings(path) == [event(3)]
    with HealthFile(path) as file:
        file.append_event(event(5))
    assert read_findings(path) == [event(3), event(5)]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{}", "it has no step"),
        ('{"step": 1, "kind": "finding"}', "it has no finding"),
        ('{"step": 1, "kind": "finding", "finding": {}}', "is not a valid Happening"),
        ('{"step": 1, "kind": "finding", "event": "begins", "finding": {}}', "it has no check"),
        ("[]", "it is no object"),
    ],
)
def test_a_line_of_something_else_is_named(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "health.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(RunFolderError, match=f"line 1: not a line of health .*{why}"):
        read_findings(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="there is no health file"):
        read_findings(tmp_path / "health.jsonl")
