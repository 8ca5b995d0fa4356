"""`health.jsonl`: what went wrong in a run and where, one line of strict JSON each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from groupwise.records.lines_file import LinesFile, read_lines
from groupwise.records.metrics_file import number_of, spelled
from groupwise.records.nouns import Finding, Severity

FEW_STEPS = 10
"""Below so many steps most checks wait for more."""

FIELDS: Mapping[str, str] = {
    "step": "Batch in which it was found; the first is 1.",
    "kind": "`skipped_update`: numbers that are not finite were kept from the weights. `finding`: what a health check "
    "sees begins, worsens or ends. `action`: what a finding did to the run.",
    "source": "Of a skipped update: where they came from: `sampler log-prob`, `old log-prob`, `reference log-prob`, "
    "`policy log-prob`, `advantage`, `value`, `value target`, `correction`, `ratio overflow`, `KL overflow`, "
    "`extreme log-prob` or `gradient`.",
    "sentence": "The same for people, with what was measured; of an action, what was done.",
    "rollouts": "Of a skipped update: the tokens that it came from, at most eight: `prompt_id`, `group_index`, `token` "
    "(its place in the response, from 0) and the `value` there. Of a finding that begins or worsens: rollouts of the "
    "step that show it, `prompt_id`, `group_index` and `why`; absent where none does.",
    "event": "Of a finding: `begins`; `worsens`, when it is more severe than it has been; `ends`, when it has not been "
    "seen for a while.",
    "finding": "Its `check`, the `kind` of fault, its `severity` (`info`, `warning` or `critical`), the `first_step` "
    "and `last_step` that it was judged by, a `summary`, the `evidence` (numbers by name), `causes` (the likeliest "
    "first) and `remedies` (the cheapest first).",
    "action": "Of an action: its `check`; the `act`: `adjust`, `revert` (adjustments were taken back), `rollback`, or, "
    "when it was taken as often as it may, `warn` or `stop`; the `number` of times it has been taken, of how many "
    "`times`; the `factors` now in force, by `learning_rate`, `beta` and `temperature`; and the step `to_step` whose "
    "weights a rollback went back to, else null.",
}
"""The fields of a line."""

MOST_SHOWN = 8
"""How many offending tokens a line names at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offender:
    """A token whose number is at fault."""

    prompt_id: str
    """Of its prompt."""
    group_index: int
    """Of its rollout."""
    token: int
    """Its place in the response, from 0."""
    value: float
    """The number there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why an update was skipped."""

    source: str
    """As in the field `source`."""
    sentence: str
    """For people."""
    offenders: Sequence[Offender] = ()
    """Where; empty where no single token is at fault."""


class Happening(StrEnum):
    """What became of a finding."""

    BEGINS = "begins"
    WORSENS = "worsens"  # more severe than it has been
    ENDS = "ends"  # not seen for a while


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A rollout of the step that shows a finding."""

    prompt_id: str
    """Of its prompt."""
    group_index: int
    """Within its group."""
    why: str
    """What it is an example of, in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthEvent:
    """A finding that begins, worsens or ends."""

    step: int
    """The step after which it was noticed."""
    event: Happening
    """Which of the three."""
    finding: Finding
    """As it was seen last."""
    examples: tuple[Example, ...] = field(default=(), compare=False)
    """Rollouts of the step to look at; none where it ends, or where no rollout shows it."""


class Act(StrEnum):
    """What was done for a finding."""

    ADJUST = "adjust"  # settings were changed
    REVERT = "revert"  # they were changed back, since the finding is over
    ROLLBACK = "rollback"  # weights went back to a healthy checkpoint, and settings were changed
    WARN = "warn"  # nothing, since it was done as often as it may be
    STOP = "stop"  # for the same reason, the run is ended


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionTaken:
    """Something that was done to a run for a finding."""

    step: int
    """The step after which it was done."""
    check: str
    """Whose finding it was for."""
    act: Act
    """What."""
    number: int
    """How often it has been done for this check, this time included."""
    times: int
    """How often it may be."""
    factors: Mapping[str, float]
    """What the settings that it changes are multiplied by from here on, all actions together."""
    to_step: int | None
    """The step whose weights were gone back to; None without going back."""
    sentence: str
    """The same for people."""


class HealthFile(LinesFile):
    """Appends to `health.jsonl`."""

    def append(self, step: int, fault: Fault) -> None:
        """Write one line.

        Raises:
            RunFolderError: it cannot be written, for example since the disk is full.
        """
        rollouts: list[dict[str, Any]] = [
            {
                "prompt_id": each.prompt_id,
                "group_index": each.group_index,
                "token": each.token,
                "value": spelled("value", each.value),
            }
            for each in fault.offenders[:MOST_SHOWN]
        ]
        self.put(
            {
                "step": step,
                "kind": "skipped_update",
                "source": fault.source,
                "sentence": fault.sentence,
                "rollouts": rollouts,
            }
        )

    def append_event(self, event: HealthEvent) -> None:
        """Write one line.

        Raises:
            RunFolderError: it cannot be written.
        """
        self.put(plain_event(event))

    def append_action(self, taken: ActionTaken) -> None:
        """Write one line.

        Raises:
            RunFolderError: it cannot be written.
        """
        action = asdict(taken)
        step, sentence = action.pop("step"), action.pop("sentence")
        self.put({"step": step, "kind": "action", "action": action, "sentence": sentence})


def plain_event(event: HealthEvent) -> dict[str, Any]:
    """The line of an event."""
    return {
        "step": event.step,
        "kind": "finding",
        "event": str(event.event),
        "finding": plain_finding(event.finding),
        **({"rollouts": [asdict(each) for each in event.examples]} if event.examples else {}),
    }


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


def read_findings(path: Path) -> list[HealthEvent]:
    """What became of findings, in order. A torn last line is left out, and a warning says so.

    Warns:
        UserWarning: the last line was cut short.

    Raises:
        RunFolderError: no such file, or a line that is not one of ours; names its number.
    """

    def read(line: Mapping[str, Any]) -> HealthEvent | None:
        if not isinstance(line.get("step"), int):
            raise ValueError("it has no step")
        if line.get("kind") != "finding":
            return None
        finding = line.get("finding")
        if not isinstance(finding, dict):
            raise ValueError("it has no finding")
        try:
            examples = tuple(Example(**each) for each in line.get("rollouts", ()))
        except TypeError as error:
            raise ValueError(f"its rollouts are not whole: {error}") from None
        return HealthEvent(
            step=line["step"],
            event=Happening(line.get("event", "")),
            finding=finding_of(finding),
            examples=examples,
        )

    return [event for event in read_lines(path, read, what="health") if event is not None]


def read_actions(path: Path) -> list[ActionTaken]:
    """What was done for findings, in order. A torn last line is left out, and a warning says so.

    Warns:
        UserWarning: the last line was cut short.

    Raises:
        RunFolderError: no such file, or a line that is not one of ours; names its number.
    """

    def read(line: Mapping[str, Any]) -> ActionTaken | None:
        if line.get("kind") != "action":
            return None
        try:
            action = dict(line["action"])
            return ActionTaken(
                **{**action, "act": Act(action["act"])},
                step=int(line["step"]),
                sentence=str(line["sentence"]),
            )
        except (LookupError, TypeError) as error:
            raise ValueError(f"its action is not whole: {error}") from None

    return [taken for taken in read_lines(path, read, what="health") if taken is not None]
