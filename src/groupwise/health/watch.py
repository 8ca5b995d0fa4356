"""Makes the checks step by step, and follows each finding from when it begins to when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise import registry
from groupwise.config.choice import check_settings
from groupwise.config.health import CHECKS, HealthConfig
from groupwise.config.run import RunConfig
from groupwise.errors import ConfigError, raised
from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.records import Finding, Severity
from groupwise.records.health_file import Happening, HealthEvent, finding_of, plain_finding

QUIET_STEPS = 10
"""A finding has ended when it was not seen for so many steps, so that one on the edge is not told again and again."""

Check = Callable[[History, Facts], Sequence[Finding]]
_ORDER = tuple(Severity)


def checks_of(config: HealthConfig, *, base: Path | None = None) -> dict[str, Check]:
    """The checks of a configuration with their thresholds, by name.

    Args:
        config: which are off, added, and set otherwise.
        base: folder that a user's own are looked up from.

    Raises:
        ConfigError: one of the user's own cannot be imported, or does not have such a setting; names it.
    """
    names = [name for name in registry.names(CHECKS) if name not in config.off]
    checks: dict[str, Check] = {}
    for name in (*names, *config.add):
        function = registry.find(CHECKS, name, base=base)
        try:
            settings = check_settings(function, config.thresholds.get(name, {}))
        except ValueError as error:
            raise ConfigError(f"health.thresholds.{name}: {error}") from None
        checks[name] = registry.bind(function, settings)
    return checks


def watch_of(config: RunConfig, *, base: Path | None = None) -> Watch:
    """What watches a run of a configuration; see `checks_of`."""
    return Watch(
        checks_of(config.health, base=base),
        Facts.of(config),
        every_steps=config.health.every_steps,
        stop=config.health.stop,
    )


class Watch:
    """Looks at a run after each step.

    Attributes:
        checks: what is made, by name; one that raised is taken out.
        faults: a sentence for each check that raised.
        write: takes what happens; None for nobody.
        say: shows a sentence to whoever watches the run, each finding that begins or worsens once; None for nobody.
        ill: why the run is to be ended; None while it is not.
    """

    def __init__(
        self,
        checks: Mapping[str, Check],
        facts: Facts,
        *,
        every_steps: int | None = 1,
        stop: Sequence[str] = (),
        write: Callable[[HealthEvent], None] | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """Take the parts.

        Args:
            checks: to be made, by name.
            facts: of the run.
            every_steps: after so many steps; None for never.
            stop: names of the checks whose critical findings end the run.
            write: as the attribute.
            say: as the attribute.
        """
        self.checks = dict(checks)
        self.faults: list[str] = []
        self._facts = facts
        self._every = every_steps
        self._stop = frozenset(stop)
        self.write, self.say = write, say
        self.ill: str | None = None
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
            if self.write is not None:
                self.write(event)
            if event.event is Happening.ENDS:
                continue
            if self.say is not None:
                self.say(sentence(event.finding))
            if event.finding.severity is Severity.CRITICAL and event.finding.check in self._stop:
                self.ill = sentence(event.finding)
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
                if self.say is not None:
                    self.say(self.faults[-1])
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
