"""The health of a run, from its folder alone: finished, stopped, or still running."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from groupwise.config import load
from groupwise.config.health import CHECKS
from groupwise.errors import ConfigError, RunFolderError
from groupwise.health.watch import watch_of
from groupwise.records import Finding, Severity
from groupwise.records.health_file import (
    FEW_STEPS,
    ActionTaken,
    Example,
    Happening,
    HealthEvent,
    read_actions,
    read_findings,
)
from groupwise.records.metrics_file import nothing_learned, read_metrics
from groupwise.records.run_folder import RunFolder, read_manifest
from groupwise.registry import names, nearest

_ORDER = tuple(Severity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What the checks say of a run."""

    folder: Path
    """The run."""
    steps: int
    """Finished steps."""
    checks: tuple[str, ...]
    """That were made."""
    events: tuple[HealthEvent, ...]
    """What happened, in order."""
    open: tuple[Finding, ...]
    """Findings that hold at the last step, the most severe first."""
    actions: tuple[ActionTaken, ...]
    """What findings did to the run while it ran, in order."""
    notes: tuple[str, ...]
    """What is worth knowing of the reading itself."""
    nothing_learned: str | None = None
    """What is said of a run whose rewards changed no weight; None for other runs."""

    @property
    def worst(self) -> Severity | None:
        """The highest severity of all that was found; None for nothing."""
        found = [event.finding.severity for event in self.events]
        return max(found, key=_ORDER.index) if found else None

    def lines(self) -> Iterator[str]:
        """For people: what holds now in full, then what is over."""
        yield f"{self.folder}: {self.steps} steps, {len(self.checks)} checks"
        yield from self.notes
        if self.nothing_learned is not None:
            yield f"learned {self.nothing_learned}"
        if not self.events:
            if not self.steps:
                yield "no step is finished yet, so there is nothing to look at"
            elif self.steps < FEW_STEPS:
                yield f"nothing found, but {self.steps} steps are too few for most checks to say anything"
            else:
                yield "nothing found"
            return
        for finding in self.open:
            began = self._began(finding)
            yield ""
            yield f"{finding.severity}  {finding.check}, since step {began}: {finding.summary}"
            numbers = ", ".join(f"{name} {value:.4g}" for name, value in finding.evidence.items())
            yield f"  evidence  {numbers} (steps {finding.first_step} to {finding.last_step})"
            examples, step = self._examples(finding)
            for each in examples:
                yield f"  rollout   step {step}, prompt {each.prompt_id}, {each.group_index} of its group: {each.why}"
            yield from _numbered("causes", finding.causes)
            yield from _numbered("try", finding.remedies)
            if finding.check in names(CHECKS):
                yield f"  more      groupwise health --about {finding.check}"
        if self.actions:
            yield ""
        for taken in self.actions:
            yield f"done  {taken.sentence}"
        over = [event for event in self.events if event.event is Happening.ENDS]
        if over:
            yield ""
        for event in over:
            finding = event.finding
            yield (
                f"over  {finding.severity} {finding.check}, steps {finding.last_step} to "
                f"{event.step}: {finding.summary}"
            )

    def _began(self, finding: Finding) -> int:
        steps = [
            event.step
            for event in self.events
            if event.finding.key == finding.key and event.event is Happening.BEGINS
        ]
        return steps[-1]

    def _examples(self, finding: Finding) -> tuple[tuple[Example, ...], int]:
        """Those of when it was last told, and of which step they are."""
        told = [event for event in self.events if event.finding.key == finding.key and event.examples]
        return (told[-1].examples, told[-1].step) if told else ((), 0)


def about(check: str) -> str:
    """What a check's findings mean, how to confirm them and what to try: its section of docs/health.md.

    Raises:
        ConfigError: there is no such check; names the nearest, or all.
    """
    if check not in names(CHECKS):
        near = nearest(check, names(CHECKS))
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(names(CHECKS))}"
        raise ConfigError(f"--about {check!r}: there is no such check of groupwise's own; {hint}")
    page = Path(__file__).with_name("health.md")  # of the wheel; in a checkout the page itself
    if not page.is_file():
        page = Path(__file__).parents[3] / "docs" / "health.md"
    text = page.read_text(encoding="utf-8").partition(f"\n## {check}\n")[2].partition("\n## ")[0]
    return f"{check}\n\n{text.strip()}"


def diagnose(path: Path) -> Diagnosis:
    """Make every check on a run, step by step as a run does it.

    The folder may be of a run that is still running; nothing is written to it.

    Args:
        path: the run folder.

    Raises:
        RunFolderError: it is not one of ours, or has no metrics.
    """
    folder = RunFolder(path.expanduser())
    if not folder.path.is_dir():
        raise RunFolderError(
            f"there is no run folder {path}; `groupwise health` takes the folder that a run made"
        )
    read_manifest(folder)
    if not folder.config_file.is_file():
        raise RunFolderError(f"{path} has no config.yaml, so what its metrics mean is not known")
    loaded = load(folder.config_file)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lines = read_metrics(folder.metrics_file)
        told = folder.health_file.exists()
        actions = read_actions(folder.health_file) if told else []
        written = read_findings(folder.health_file) if told else []
    watch = watch_of(loaded.config, base=loaded.base)
    events: list[HealthEvent] = []
    for line in lines:
        events += watch.look(line)
    examples = {(e.step, e.finding.key): e.examples for e in written if e.examples}
    events = [replace(e, examples=examples.get((e.step, e.finding.key), ())) for e in events]
    return Diagnosis(
        folder=folder.shown,
        steps=int(max((line["step"] for line in lines), default=0)),
        checks=tuple(watch.checks),
        events=tuple(events),
        open=tuple(watch.findings),
        actions=tuple(actions),
        notes=(*(str(warning.message) for warning in caught), *watch.faults),
        nothing_learned=nothing_learned(lines),
    )


def _numbered(head: str, entries: Sequence[str]) -> Iterator[str]:
    for number, entry in enumerate(entries, start=1):
        yield f"  {head if number == 1 else '':<8}  {number}. {entry}"
