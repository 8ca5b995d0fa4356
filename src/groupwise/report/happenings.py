"""What the health file tells, for the page: findings from when they begin to when they end, and everything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.report.tokens import shortened

MOST = 200
"""Findings, and other events, that are shown."""
_CHARACTERS = 1000


def happenings(lines: Sequence[Mapping[str, Any]], *, most: int = MOST) -> dict[str, Any]:
    """Findings and other events.

    Args:
        lines: of health.jsonl.
        most: of each that are kept, the first.

    Returns:
        `findings`: what the finding was at its worst, with the steps `begins`, `worsens` (a list) and `ends` (None
        while it holds); `events`: a `step`, a `kind` and a `sentence`; `more`: how many of each were left out.
    """
    findings: list[dict[str, Any]] = []
    open_: dict[str, dict[str, Any]] = {}
    events: list[dict[str, Any]] = []
    for line in lines:
        finding, step = line.get("finding"), line["step"]
        if line.get("kind") != "finding" or finding is None:
            events.append({"step": step, "kind": str(line.get("kind")), "sentence": _sentence(line)})
            continue
        key = f"{finding.get('check')}/{finding.get('kind')}"
        if line.get("event") == "ends":
            if key in open_:
                open_.pop(key)["ends"] = step
            continue
        if key not in open_:
            open_[key] = {"begins": step, "worsens": [], "ends": None}
            findings.append(open_[key])
        elif line.get("event") == "worsens":
            open_[key]["worsens"].append(step)
        open_[key] |= _told(finding) | {"examples": _examples(line)}
    return {
        "findings": findings[:most],
        "events": events[:most],
        "more": [max(0, len(findings) - most), max(0, len(events) - most)],
    }


def steps_of(found: Mapping[str, Any]) -> list[int]:
    """Steps in which something happened, in order."""
    steps = [finding["begins"] for finding in found["findings"]]
    return sorted({*steps, *(event["step"] for event in found["events"])})


def _told(finding: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "check": shortened(str(finding.get("check")), 200),
        "kind": shortened(str(finding.get("kind")), 200),
        "severity": str(finding.get("severity")),
        "first_step": finding.get("first_step"),
        "last_step": finding.get("last_step"),
        "summary": shortened(str(finding.get("summary")), _CHARACTERS),
        "evidence": dict(finding.get("evidence", {})),
        "causes": [shortened(str(each), _CHARACTERS) for each in finding.get("causes", ())],
        "remedies": [shortened(str(each), _CHARACTERS) for each in finding.get("remedies", ())],
    }


def _examples(line: Mapping[str, Any]) -> list[str]:
    """The rollouts that show a finding, at the step of its line."""
    return [
        shortened(
            f"step {line['step']}, {each.get('prompt_id')}, rollout {each.get('group_index')}: {each.get('why')}",
            300,
        )
        for each in line.get("rollouts") or ()
        if isinstance(each, dict)
    ][:8]


def _sentence(line: Mapping[str, Any]) -> str:
    """What a line says, also of a kind that is not known here."""
    if isinstance(line.get("sentence"), str):
        return shortened(line["sentence"], _CHARACTERS)
    said = [f"{key} {value}" for key, value in line.items() if isinstance(value, str | int | float)]
    return shortened(", ".join(said), _CHARACTERS)
