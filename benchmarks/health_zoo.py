"""How well the health checks tell sick runs from healthy ones, and what rollback heals: writes docs/results/health.md.

python -m benchmarks.health_zoo               # about five minutes on one core

The runs are those of tests/end_to_end/sick. The first table is of those that the thresholds were looked at with, the
second of runs of another architecture and task that were not used for them; all results stand as they come out.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from groupwise import registry
from groupwise.config.health import CHECKS
from tests.end_to_end.sick.patients import (
    HEALTHY,
    SICK,
    UNSEEN_HEALTHY,
    UNSEEN_SICK,
    Course,
    Patient,
    course,
)
from tests.end_to_end.sick.recovery import ILLNESSES, STEPS, live

PAGE = Path(__file__).parents[1] / "docs/results/health.md"


def thresholds() -> str:
    """A digest of every threshold's default, by which one knows whether a page is of these."""
    said = "".join(
        f"{name}.{key}={parameter.default};"
        for name in registry.names(CHECKS)
        for key, parameter in registry.settings(registry.find(CHECKS, name)).items()
    )
    return hashlib.sha256(said.encode()).hexdigest()[:12]


def table(courses: Sequence[Course]) -> Iterator[str]:
    """A row for each run: what had to be found, whether it was, and every finding above info."""
    yield "| run | to be found | by step | found at | all findings above info, with their first step |"
    yield "| --- | --- | --- | --- | --- |"
    for each in courses:
        patient = each.patient
        alarms = ", ".join(f"{name} {step}" for name, step in each.alarms.items()) or "none"
        if patient.check is None:
            yield f"| {patient.name} | nothing | | {'**something**' if each.alarms else 'nothing'} | {alarms} |"
            continue
        at = each.found_at
        verdict = "**never**" if at is None else f"**{at}**" if at > patient.within else str(at)
        grade = " (info)" if patient.severity == "info" else ""
        yield f"| {patient.name} | {patient.check}{grade} | {patient.within} | {verdict} | {alarms} |"


def confusion(courses: Sequence[Course]) -> Iterator[str]:
    """Runs by what they are and what was said of them."""
    sick = [each for each in courses if each.patient.check is not None]
    healthy = [each for each in courses if each.patient.check is None]
    named = sum(each.found_at is not None and each.found_at <= each.patient.within for each in sick)
    other = sum(each.found_at is None and bool(each.alarms) for each in sick)
    late = sum(each.found_at is not None and each.found_at > each.patient.within for each in sick)
    alarmed = sum(bool(each.alarms) for each in healthy)
    yield "| | named by its check in time | named late | only other findings | no finding above info |"
    yield "| --- | --- | --- | --- | --- |"
    rest = len(sick) - named - other - late
    yield f"| {len(sick)} sick | {named} | {late} | {other} | {rest} |"
    yield f"| {len(healthy)} healthy | | | {alarmed} | {len(healthy) - alarmed} |"


def ward(title: str, patients: Sequence[Patient], place: Path) -> Iterator[str]:
    """A section with both tables."""
    courses = []
    for patient in patients:
        courses.append(course(patient, place / "run"))
        print(f"{title}: {patient.name}: {courses[-1].alarms}", flush=True)
    yield from (f"## {title}", "", *confusion(courses), "", *table(courses), "")


def recoveries(place: Path) -> Iterator[str]:
    """A section on what rollback heals."""
    yield from ("## Rollback", "")
    yield (
        f"Runs of {STEPS} steps that fall ill on their way, with `health.actions` on kl_runaway and without; held-out "
        "accuracy before the illness (at the checkpoint first gone back to) and after the last step."
    )
    yield ""
    yield "| run | seed | first ill at step | rollbacks | before | after, with rollback | after, without |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name, (_, action) in ILLNESSES.items():
        for seed in (0, 1, 2):
            healed = live(name, place / "healed", seed=seed, rollback=True)
            left = live(name, place / "left", seed=seed, rollback=False)
            row = (
                f"| {name} | {seed} | {healed.ill_at} | {healed.rollbacks} | {healed.before:.0%} | {healed.after:.0%} "
                f"| {left.after:.0%} |"
            )
            print(row, flush=True)
            yield row
        yield f"| | | | | | {action} | |"
    yield ""


def main() -> None:
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        lines = [
            "# What the health checks find",
            "",
            "Written by `python -m benchmarks.health_zoo`: tiny models, each run really trained.",
            f"Digest of all thresholds: {thresholds()}.",
            "",
            *ward("Runs that the thresholds were looked at with", [*SICK, *HEALTHY], place),
            *ward("Another architecture and task, not looked at", [*UNSEEN_SICK, *UNSEEN_HEALTHY], place),
            *recoveries(place),
        ]
    lines += [f"All runs together took {time.perf_counter() - started:.0f} s.", ""]
    PAGE.write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
