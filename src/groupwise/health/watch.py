"""Makes the checks step by step, and follows each finding from when it begins to when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from groupwise import registry
from groupwise.errors import raised
from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.records import Finding, Severity
from groupwise.records.health_file import Happening, HealthEvent, finding_of, plain_finding

CHECKS = "groupwise.health.checks"
QUIET_STEPS = 10
"""A finding has ended when it was not seen for so many steps, so that one on the edge is not told again and again."""

Check = Callable[[History, Facts], Sequence[Finding]]
_ORDER = tuple(Severity)


def all_checks() -> dict[str, Check]:
    """Every check of the registry with its own thresholds, by name."""
    return {name: registry.find(CHECKS, name) for name in registry.names(CHECKS)}


class Watch:
    """Looks at a run after each step.

    Attributes:
        checks: what is made, by name; one that raised is taken out.
        faults: a sentence for each check that raised.
    """

    def __init__(
        self,
        checks: Mapping[str, Check],
        facts: Facts,
        *,
        every_steps: int | None = 1,
        write: Callable[[HealthEvent], None] | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """Take the parts.

        Args:
            checks: to be made, by name.
            facts: of the run.
            every_steps: after so many steps; None for never.
            write: takes what happens.
            say: shows a sentence to whoever watches the run; each finding that begins or worsens, once.
        """
        self.checks = dict(checks)
        self.faults: list[str] = []
        self._facts = facts
        self._every = every_steps
        self._write, self._say = write, say
        self._history = History()
        self._open: dict[str, tuple[Finding, int]] = {}

    @property
    def findings(self) -> list[Finding]:
        """Those that have begun and not ended, the most severe first."""
        return sorted((finding for finding, _ in self._open.values()), key=_rank, reverse=True)

    @property
    def healthy(self) -> bool:
        """False while a critical finding has begun and not ended."""
        return all(finding.severity is not Severity.CRITICAL for finding in self.findings)

    def remember(self, lines: Iterable[Mapping[str, float]]) -> None:
        """Take the metrics of earlier steps without looking at them, as on resuming."""
        for line in lines:
            self._history.add(line)

    def look(self, line: Mapping[str, float]) -> list[HealthEvent]:
        """Take the metrics of one more step, make the checks if they are due, and give what has happened.

        Args:
            line: as in metrics.jsonl, with its `step`; step 0, the evaluation before the first, is only remembered.
        """
        self._history.add(line)
        step = self._history.step
        if self._every is None or step == 0 or step % self._every:
            return []
        events = [event for finding in self._found() if (event := self._follow(finding, step)) is not None]
        over = [key for key, (_, seen) in self._open.items() if step - seen >= QUIET_STEPS]
        events += [
            HealthEvent(step=step, event=Happening.ENDS, finding=self._open.pop(key)[0]) for key in over
        ]
        for event in events:
            if self._write is not None:
                self._write(event)
            if self._say is not None and event.event is not Happening.ENDS:
                self._say(sentence(event.finding))
        return events

    def _found(self) -> list[Finding]:
        findings: list[Finding] = []
        for name, check in list(self.checks.items()):
            try:
                findings += check(self._history, self._facts)
            except Exception as error:  # a diagnosis must not be what ends a run
                del self.checks[name]
                self.faults.append(
                    f"the health check {name} failed ({raised(error)}) and is left out from here"
                )
                if self._say is not None:
                    self._say(self.faults[-1])
        return findings

    def _follow(self, finding: Finding, step: int) -> HealthEvent | None:
        """Note a finding; the event where it begins or worsens."""
        before = self._open.get(finding.key)
        if before is not None and _rank(finding) <= _rank(before[0]):
            self._open[finding.key] = (before[0], step)
            return None
        self._open[finding.key] = (finding, step)
        happening = Happening.BEGINS if before is None else Happening.WORSENS
        return HealthEvent(step=step, event=happening, finding=finding)

    def state(self) -> dict[str, Any]:
        """See `checkpoint.state.Stateful`: the findings that have not ended."""
        return {"open": [{**plain_finding(finding), "seen": seen} for finding, seen in self._open.values()]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `checkpoint.state.Stateful`. The metrics of earlier steps are given by `remember`."""
        self._open = {}
        for data in state["open"]:
            finding = finding_of(data)
            self._open[finding.key] = (finding, data["seen"])


def sentence(finding: Finding) -> str:
    """A finding for people, on one line."""
    cause = f"; likely {finding.causes[0]}" if finding.causes else ""
    remedy = f"; try: {finding.remedies[0]}" if finding.remedies else ""
    return (
        f"{finding.severity} {finding.check} (step {finding.last_step}): {finding.summary}{cause}{remedy}; "
        f"docs/health.md#{finding.check}"
    )


def _rank(finding: Finding) -> int:
    return _ORDER.index(finding.severity)
