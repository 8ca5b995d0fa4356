"""Makes the checks step by step, and follows each finding from when it begins to when it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from groupwise import registry
from groupwise.config.choice import check_settings
from groupwise.config.health import CHECKS, HealthConfig
from groupwise.config.run import RunConfig
from groupwise.errors import ConfigError, raised
from groupwise.health.actions import Actions
from groupwise.health.examples import examples_of
from groupwise.health.facts import Facts
from groupwise.health.history import ROLLED_BACK, History
from groupwise.records import Finding, Severity, TrainingGroup
from groupwise.records.health_file import Act, ActionTaken, Happening, HealthEvent, finding_of, plain_finding

QUIET_STEPS = 10
"""A finding has ended when it was not seen for so many steps, so that one on the edge is not told again and again."""

Check = Callable[[History, Facts], Sequence[Finding]]
_ORDER = tuple(Severity)
_log = logging.getLogger(__name__)


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
        actions=Actions(rules=config.health.actions),
    )


class Watch:
    """Looks at a run after each step.

    Attributes:
        checks: what is made, by name; one that raised is taken out.
        faults: a sentence for each check that raised.
        actions: what findings do to the run beside being told.
        write: takes what happens and what is done; None for nobody.
        say: shows a sentence to whoever watches the run, each finding that begins or worsens once; None for nobody.
        ill: why the run is to be ended; None while it is not.
        back: the step whose weights the run is to go back to; None while it is not.
    """

    def __init__(
        self,
        checks: Mapping[str, Check],
        facts: Facts,
        *,
        every_steps: int | None = 1,
        stop: Sequence[str] = (),
        actions: Actions | None = None,
        write: Callable[[HealthEvent | ActionTaken], None] | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """Take the parts.

        Args:
            checks: to be made, by name.
            facts: of the run.
            every_steps: after so many steps; None for never.
            stop: names of the checks whose critical findings end the run.
            actions: as the attribute; None for none.
            write: as the attribute.
            say: as the attribute.
        """
        self.checks = dict(checks)
        self.faults: list[str] = []
        self._facts = facts
        self._every = every_steps
        self._stop = frozenset(stop)
        self.actions = actions or Actions()
        self.write, self.say = write, say
        self.ill: str | None = None
        self.back: int | None = None
        self._history = History()
        self._open: dict[str, tuple[Finding, int]] = {}
        self._now: tuple[int, list[Finding]] = (-1, [])

    @property
    def findings(self) -> list[Finding]:
        """Those that have begun and not ended, the most severe first."""
        return sorted((finding for finding, _ in self._open.values()), key=_rank, reverse=True)

    @property
    def healthy(self) -> bool:
        """False while a critical finding has begun and not ended, or a warning of a check that would go back for it."""
        back = self.actions.goes_back
        return not any(
            finding.severity is Severity.CRITICAL
            or (finding.severity is Severity.WARNING and finding.check in back)
            for finding in self.findings
        )

    def remember(self, lines: Iterable[Mapping[str, float]]) -> None:
        """Take the metrics of earlier steps without looking at them, as on resuming."""
        for line in lines:
            self._history.add(line)

    def look(self, line: Mapping[str, float], groups: Sequence[TrainingGroup] = ()) -> list[HealthEvent]:
        """Take the metrics of one more step, make the checks if they are due, and give what has happened.

        Args:
            line: as in metrics.jsonl, with its `step`; step 0, the evaluation before the first, is only remembered.
            groups: the batch, for rollouts that show what is found; empty where it is not at hand.

        A finding of before a rollback ends with the next step.
        """
        self.back = None
        gone_back = self._history.back is not None
        self._history.add(line)
        step = self._history.step
        events = self._end([*self._open] if gone_back else [], step)
        if self._every is None or step == 0 or step % self._every:
            self._tell(events)
            return events
        found = self._found()
        events += [event for finding in found if (event := self._follow(finding, step, groups)) is not None]
        events += self._end([k for k, (_, seen) in self._open.items() if step - seen >= QUIET_STEPS], step)
        self._tell(events)
        self._now = (step, found)
        return events

    def act(self) -> dict[str, float]:
        """Do what the findings of the latest step call for, tell it, and give the metrics of it, names as in METRICS.

        In a run, after `look`; whoever only reads a run leaves it out.
        """
        step, found = self._now
        if not self.actions.rules or step != self._history.step:
            return {}
        taken = self.actions.decide(step, found, {finding.check for finding in self.findings})
        for each in taken:
            _log.info("%s", each.sentence)
            if self.write is not None:
                self.write(each)
            if self.say is not None:
                self.say(each.sentence)
            if each.act is Act.STOP:
                self.ill = each.sentence
            if each.to_step is not None:
                self.back = self._history.back = each.to_step
        done = sum(each.act in (Act.ADJUST, Act.REVERT, Act.ROLLBACK) for each in taken)
        return {"health/actions_count": float(done)} | (
            {} if self.back is None else {ROLLED_BACK: float(self.back)}
        )

    def _end(self, keys: Sequence[str], step: int) -> list[HealthEvent]:
        return [HealthEvent(step=step, event=Happening.ENDS, finding=self._open.pop(key)[0]) for key in keys]

    def _tell(self, events: Sequence[HealthEvent]) -> None:
        for event in events:
            if self.write is not None:
                self.write(event)
            if event.event is Happening.ENDS:
                continue
            if self.say is not None:
                self.say(sentence(event.finding))
            if event.finding.severity is Severity.CRITICAL and event.finding.check in self._stop:
                self.ill = sentence(event.finding)

    def _found(self) -> list[Finding]:
        findings: list[Finding] = []
        for name, check in list(self.checks.items()):
            try:
                # The name that the configuration knows the check by is what stop and actions go by.
                findings += [replace(each, check=name) for each in check(self._history, self._facts)]
            except Exception as error:  # a diagnosis must not be what ends a run
                del self.checks[name]
                self.faults.append(
                    f"the health check {name} failed ({raised(error)}) and is left out from here"
                )
                if self.say is not None:
                    self.say(self.faults[-1])
        return findings

    def _follow(self, finding: Finding, step: int, groups: Sequence[TrainingGroup]) -> HealthEvent | None:
        """Note a finding; the event where it begins or worsens."""
        before = self._open.get(finding.key)
        if before is not None and _rank(finding) <= _rank(before[0]):
            self._open[finding.key] = (before[0], step)
            return None
        self._open[finding.key] = (finding, step)
        happening = Happening.BEGINS if before is None else Happening.WORSENS
        examples = examples_of(finding.check, groups) if groups else ()
        return HealthEvent(step=step, event=happening, finding=finding, examples=examples)

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
    more = (
        f"; more: groupwise health --about {finding.check}" if finding.check in registry.names(CHECKS) else ""
    )
    return f"{finding.severity} {finding.check} (step {finding.last_step}): {finding.summary}{cause}{remedy}{more}"


def _rank(finding: Finding) -> int:
    return _ORDER.index(finding.severity)
