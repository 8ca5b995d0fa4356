"""`health.jsonl`: one line for each finding that begins, worsens or ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from groupwise.records.lines import LinesFile, number_of, read_lines, spelled
from groupwise.records.nouns import Finding, Severity

HEALTH: Mapping[str, str] = {
    "step": "The step after which it was noticed.",
    "event": "`begins`; `worsens`, when it is more severe than it has been; `ends`, when it has not been seen "
    "for a while.",
    "check": "The health check that found it.",
    "kind": "Which of the faults that the check knows.",
    "severity": "`info`, `warning` or `critical`.",
    "first_step": "First step of those that it was judged by.",
    "last_step": "Last step of those that it was judged by.",
    "summary": "What was seen, with its numbers.",
    "evidence": "The numbers that decided, limits included, by name.",
    "causes": "The likeliest first.",
    "remedies": "The cheapest first.",
}
"""The fields of a line."""


class Happening(StrEnum):
    """What became of a finding."""

    BEGINS = "begins"
    WORSENS = "worsens"  # more severe than it has been
    ENDS = "ends"  # not seen for a while


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthEvent:
    """A finding that begins, worsens or ends."""

    step: int
    """The step after which it was noticed."""
    event: Happening
    """Which of the three."""
    finding: Finding
    """As it was seen last."""


class HealthFile(LinesFile):
    """Appends to `health.jsonl`."""

    def append(self, event: HealthEvent) -> None:
        """Write one line.

        Raises:
            RunFolderError: it cannot be written.
        """
        self.write({"step": event.step, "event": str(event.event), **plain_finding(event.finding)})


def plain_finding(finding: Finding) -> dict[str, Any]:
    """A finding as plain data, for `finding_of`."""
    return {
        "check": finding.check,
        "kind": finding.kind,
        "severity": str(finding.severity),
        "first_step": finding.first_step,
        "last_step": finding.last_step,
        "summary": finding.summary,
        "evidence": {name: spelled(name, value) for name, value in finding.evidence.items()},
        "causes": list(finding.causes),
        "remedies": list(finding.remedies),
    }


def finding_of(data: Mapping[str, Any]) -> Finding:
    """What `plain_finding` was given.

    Raises:
        ValueError: a field is missing or of another kind; says which.
    """
    try:
        return Finding(
            check=str(data["check"]),
            kind=str(data["kind"]),
            severity=Severity(data["severity"]),
            first_step=int(data["first_step"]),
            last_step=int(data["last_step"]),
            summary=str(data["summary"]),
            evidence={str(name): number_of(value) for name, value in dict(data["evidence"]).items()},
            causes=tuple(map(str, data["causes"])),
            remedies=tuple(map(str, data["remedies"])),
        )
    except KeyError as error:
        raise ValueError(f"it has no {error.args[0]}") from None
    except TypeError as error:
        raise ValueError(str(error)) from None


def read_health(path: Path) -> list[HealthEvent]:
    """Every whole line. A torn last line is left out, and a warning says so.

    Warns:
        UserWarning: the last line was cut short.

    Raises:
        RunFolderError: no such file, or a line that is not one of ours; names its number.
    """

    def read(line: Mapping[str, Any]) -> HealthEvent:
        if not isinstance(line.get("step"), int):
            raise ValueError("it has no step")
        return HealthEvent(
            step=line["step"], event=Happening(line.get("event", "")), finding=finding_of(line)
        )

    return read_lines(path, read, what="health")
