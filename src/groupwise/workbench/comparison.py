"""What runs with different settings came to: a table, what is within noise, and the numbers as data."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.errors import RunFolderError
from groupwise.evaluate.intervals import LEVEL, Estimate, bootstrap_interval, student_interval
from groupwise.records import Severity
from groupwise.records.health_file import Happening, read_findings
from groupwise.records.metrics_file import read_metrics
from groupwise.records.replace import replace_file
from groupwise.records.run_folder import RunFolder, read_manifest

BASE = "base"
"""Name of the configuration as it is, to which every variant is compared."""
_NEITHER_WAY = ("eval/length_mean", "eval/truncated_fraction")
"""Metrics of which more is not better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one run came to."""

    variant: str
    """What it changes; `base` for nothing."""
    seed: int
    """Of the run; runs of one seed have the same prompts in the same order."""
    metric: str
    """Which held-out metric the numbers are of."""
    curve: list[tuple[int, float]]
    """Steps at which it was measured, and the values."""
    seconds: float
    """Of all steps, held-out evaluation left out."""
    tokens: int
    """Response tokens sampled in training."""
    findings: list[str]
    """Health checks that found something worth a warning or more, sorted."""
    data: dict[str, Any] = field(default_factory=dict)
    """The hashes of the data files, as in the manifest."""
    failure: str | None = None
    """Why it ended before its last step; None when it did not."""

    @property
    def final(self) -> float:
        """The last value."""
        return float(self.curve[-1][1])

    @property
    def area(self) -> float:
        """Area under the curve by the trapezoid rule, divided by its length in steps: its mean height."""
        steps, values = zip(*self.curve, strict=True)
        if len(steps) == 1:
            return float(values[0])
        return float(np.trapezoid(values, steps)) / float(steps[-1] - steps[0])


def outcome_of(
    folder: RunFolder, *, variant: str, seed: int, metric: str, failure: str | None = None
) -> Outcome:
    """Read what a run came to from its folder.

    Args:
        folder: of the run.
        variant: what it changes.
        seed: its seed.
        metric: which held-out metric to follow.
        failure: why it ended early, if it did.

    Raises:
        RunFolderError: the run has no such metric; names those that it has.
    """
    lines = read_metrics(folder.metrics_file)
    curve = [(int(line["step"]), line[metric]) for line in lines if metric in line]
    if not curve:
        there = sorted({name for line in lines for name in line if name.startswith("eval/")})
        raise RunFolderError(
            f"{folder.shown} has no metric {metric}; it has {', '.join(there) or 'none of eval/'}"
        )
    findings: set[str] = set()
    if folder.health_file.exists():
        findings = {
            event.finding.check
            for event in read_findings(folder.health_file)
            if event.event is not Happening.ENDS and event.finding.severity is not Severity.INFO
        }
    steps = [line for line in lines if line["step"] > 0]
    return Outcome(
        variant=variant,
        seed=seed,
        metric=metric,
        curve=curve,
        seconds=sum(line["time/step_seconds"] - line.get("time/evaluate_seconds", 0.0) for line in steps),
        tokens=int(sum(line["tokens/generated"] for line in steps)),
        findings=sorted(findings),
        data=dict(read_manifest(folder).get("data", {})),
        failure=failure,
    )


def write_outcome(outcome: Outcome, file: Path) -> None:
    """Write it as JSON, all or nothing.

    Raises:
        RunFolderError: it cannot be written.
    """
    text = json.dumps(asdict(outcome), indent=1).encode()
    replace_file(file, lambda out: out.write(text))


def read_outcome(file: Path) -> Outcome:
    """What `write_outcome` wrote.

    Raises:
        RunFolderError: the file holds something else.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        return Outcome(**{**data, "curve": [(int(step), float(value)) for step, value in data["curve"]]})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RunFolderError(f"{file} is not what a comparison writes ({error}); remove it") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The outcomes of all variants and seeds that have ended."""

    metric: str
    """Which held-out metric is compared."""
    outcomes: dict[str, list[Outcome]]
    """By variant, the base first; each in the order of seeds."""
    wanted: int
    """Runs that there will be."""

    def whole(self, variant: str) -> list[Outcome]:
        """The runs of a variant that reached their last step."""
        return [each for each in self.outcomes.get(variant, []) if each.failure is None]

    def difference(self, variant: str) -> Estimate | None:
        """Last value less the base's over the seeds that both have, with Student's interval; None without any."""
        base = {each.seed: each.final for each in self.whole(BASE)}
        pairs = [each.final - base[each.seed] for each in self.whole(variant) if each.seed in base]
        return student_interval(pairs) if pairs else None

    def table(self) -> str:
        """A line per variant, in Markdown."""
        form = _form(self.metric)
        lines = [
            f"| variant | runs | last {self.metric} | area under its curve | against the base | seconds | tokens "
            "| findings |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for variant, outcomes in self.outcomes.items():
            whole = self.whole(variant)
            if not whole:
                lines.append(f"| {variant} | 0 of {len(outcomes)} | | | | | | {_findings(outcomes)} |")
                continue
            final, area = (
                bootstrap_interval([getattr(each, name) for each in whole]).text(form)
                for name in ("final", "area")
            )
            against = self.difference(variant)
            said = "" if variant == BASE or against is None else against.text(f"+{form}")
            runs = str(len(whole)) if len(whole) == len(outcomes) else f"{len(whole)} of {len(outcomes)}"
            lines.append(
                f"| {variant} | {runs} | {final} | {area} | {said} | {_mean(whole, 'seconds'):.0f} | "
                f"{_mean(whole, 'tokens'):,.0f} | {_findings(outcomes)} |"
            )
        return "\n".join(lines)

    def sentences(self) -> list[str]:
        """What the numbers say and what they do not."""
        said = [
            f"Brackets are {LEVEL:.0%} intervals over seeds: of the last value and the area by bootstrap, which for "
            "up to 3 seeds is their range; of the difference by Student's t on pairs of runs with the same seed."
        ]
        compared = [name for name in self.outcomes if name != BASE and self.difference(name) is not None]
        said += [self._verdict(name) for name in compared]
        decided = [name for name in compared if self._decided(name)]
        if len(compared) > 1:
            chance = 1 - LEVEL ** len(compared)
            said.append(
                f"Of {len(compared)} comparisons {len(decided)} lie outside the noise; were nothing different at all, "
                f"at least one would in {chance:.0%} of such studies."
            )
        early = [each for outcomes in self.outcomes.values() for each in outcomes if each.failure is not None]
        said += [f"{each.variant}, seed {each.seed}, ended early: {each.failure}." for each in early]
        made = sum(map(len, self.outcomes.values()))
        if made < self.wanted:
            said.append(f"{self.wanted - made} of {self.wanted} runs have not ended yet.")
        return said

    def data(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "metric": self.metric,
            "runs": [
                asdict(each)
                | {"curve": [(at, value if math.isfinite(value) else None) for at, value in each.curve]}
                for outcomes in self.outcomes.values()
                for each in outcomes
            ],
            "differences": {
                name: None if found is None else found.data()
                for name in self.outcomes
                if name != BASE
                for found in [self.difference(name)]
            },
        }

    def _decided(self, variant: str) -> bool:
        found = self.difference(variant)
        return found is not None and not _alike(found) and (found.low > 0 or found.high < 0)

    def _verdict(self, variant: str) -> str:
        found = self.difference(variant)
        assert found is not None
        form = _form(self.metric)
        seeds = {each.seed for each in self.whole(BASE)} & {each.seed for each in self.whole(variant)}
        if len(seeds) == 1:
            return f"{variant}: {found.value:+{form}} against the base with one seed, which says nothing of noise."
        what = f"{variant}: {found.text(f'+{form}')} against the base over {len(seeds)} seeds"
        if math.isnan(found.value):
            return f"{variant}: {self.metric} has no value in some run, so it cannot be compared."
        if _alike(found) and found.value != 0:
            return f"{what}: the same in each, which says nothing of noise; measure more prompts, or take more seeds."
        if not self._decided(variant):
            return f"{what}: within noise."
        words = ("higher", "lower") if self.metric in _NEITHER_WAY else ("better", "worse")
        return f"{what}: {words[found.value < 0]} by more than the noise."


def _alike(found: Estimate) -> bool:
    """Whether all differences are the same, but for rounding."""
    return math.isclose(found.low, found.high, abs_tol=1e-12)


def _form(metric: str) -> str:
    return ".1%" if "pass@" in metric or metric.endswith(("accuracy", "fraction")) else ".3f"


def _mean(outcomes: Sequence[Outcome], name: str) -> float:
    return float(sum(getattr(each, name) for each in outcomes)) / len(outcomes)


def _findings(outcomes: Sequence[Outcome]) -> str:
    counts = Counter(name for each in outcomes for name in each.findings)
    return ", ".join(f"{name} in {count}" for name, count in counts.most_common()) or "none"
