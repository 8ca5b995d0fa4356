"""How well the health checks tell sick runs from healthy ones, and what rollback heals: writes docs/results/health.md.

python -m benchmarks.health_zoo               # about five minutes on one core; what was interrupted goes on

The runs are those of tests/end_to_end/sick. The first tables are of those that the thresholds were looked at with, the
second of runs of another architecture and task that were not used for them; all results stand as they come out.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import facts
from benchmarks.record import Record
from groupwise import registry
from groupwise.config.health import CHECKS
from tests.end_to_end.sick.patients import HEALTHY, SICK, UNSEEN_HEALTHY, UNSEEN_SICK, Patient, course
from tests.end_to_end.sick.recovery import ILLNESSES, STEPS, live

PAGE = facts.ROOT / "docs/results/health.md"
WARDS: Mapping[str, Sequence[Patient]] = {
    "Runs that the thresholds were looked at with": (*SICK, *HEALTHY),
    "Another architecture (Qwen2) and task, not looked at": (*UNSEEN_SICK, *UNSEEN_HEALTHY),
}
SEEDS = (0, 1, 2)


def thresholds() -> str:
    """A digest of every threshold's default, by which one knows whether a page is of these."""
    said = "".join(
        f"{name}.{key}={parameter.default};"
        for name in registry.names(CHECKS)
        for key, parameter in registry.settings(registry.find(CHECKS, name)).items()
    )
    return hashlib.sha256(said.encode()).hexdigest()[:12]


def observed(ward: str, patient: Patient, place: Path) -> dict[str, Any]:
    """One run of the zoo and what was found."""
    started = time.perf_counter()
    found = course(patient, place / "run")
    return {
        "ward": ward,
        "name": patient.name,
        "check": patient.check,
        "within": patient.within,
        "severity": str(patient.severity),
        "found_at": found.found_at,
        "alarms": found.alarms,
        "seconds": time.perf_counter() - started,
    }


def recovered(name: str, seed: int, place: Path) -> dict[str, Any]:
    """One pair of runs, with rollback and without."""
    started = time.perf_counter()
    healed = live(name, place / "healed", seed=seed, rollback=True)
    left = live(name, place / "left", seed=seed, rollback=False)
    return {
        "illness": name,
        "seed": seed,
        "ill_at": healed.ill_at,
        "rollbacks": healed.rollbacks,
        "before": healed.before,
        "after": healed.after,
        "without": left.after,
        "seconds": time.perf_counter() - started,
    }


def table(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A row for each run: what had to be found, whether it was, and every finding above info."""
    yield "| run | to be found | by step | found at | all findings above info, with their first step |"
    yield "| --- | --- | --- | --- | --- |"
    for each in runs:
        alarms = ", ".join(f"{name} {step}" for name, step in each["alarms"].items()) or "none"
        if each["check"] is None:
            verdict = "**something**" if each["alarms"] else "nothing"
            yield f"| {each['name']} | nothing | | {verdict} | {alarms} |"
            continue
        at = each["found_at"]
        verdict = "**never**" if at is None else f"**{at}**" if at > each["within"] else str(at)
        grade = " (info)" if each["severity"] == "info" else ""
        yield f"| {each['name']} | {each['check']}{grade} | {each['within']} | {verdict} | {alarms} |"


def confusion(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Runs by what they are and what was said of them."""
    sick = [each for each in runs if each["check"] is not None]
    healthy = [each for each in runs if each["check"] is None]
    named = sum(each["found_at"] is not None and each["found_at"] <= each["within"] for each in sick)
    late = sum(each["found_at"] is not None and each["found_at"] > each["within"] for each in sick)
    other = sum(each["found_at"] is None and bool(each["alarms"]) for each in sick)
    alarmed = sum(bool(each["alarms"]) for each in healthy)
    yield "| | named by its check in time | named late | only other findings | no finding above info |"
    yield "| --- | --- | --- | --- | --- |"
    yield f"| {len(sick)} sick | {named} | {late} | {other} | {len(sick) - named - late - other} |"
    yield f"| {len(healthy)} healthy | | | {alarmed} | {len(healthy) - alarmed} |"


def recoveries(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A row for each pair of runs."""
    yield (
        f"Runs of {STEPS} steps that fall ill on their way, with an action of `health.actions` on kl_runaway and "
        "without; held-out accuracy before the illness (at the checkpoint first gone back to) and after the last step."
    )
    yield ""
    for name, (_, action) in ILLNESSES.items():
        yield f"- {name}: `{action}`"
    yield ""
    yield "| run | seed | first ill after step | rollbacks | before | after, with rollback | after, without |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for each in runs:
        yield (
            f"| {each['illness']} | {each['seed']} | {each['ill_at']} | {each['rollbacks']} | {each['before']:.0%} "
            f"| {each['after']:.0%} | {each['without']:.0%} |"
        )


def page(runs: Sequence[Mapping[str, Any]], digest: str) -> str:
    """All results for people."""
    lines = [
        "# What the health checks find",
        "",
        "Written by `python -m benchmarks.health_zoo`: tiny models, each run really trained.",
        f"Digest of all thresholds: {digest}. An earlier trial on a model that had not learned its task is in",
        "[what did not work](../log.md).",
        "",
    ]
    for title in WARDS:
        of_ward = [each for each in runs if each.get("ward") == title]
        lines += [f"## {title}", "", *confusion(of_ward), "", *table(of_ward), ""]
    lines += ["## Rollback", "", *recoveries([each for each in runs if "illness" in each]), ""]
    lines += [f"All runs together took {sum(each['seconds'] for each in runs):.0f} s.", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    given = parser.parse_args()
    identity = {"thresholds": thresholds(), "versions": facts.versions("torch", "transformers")}
    record = Record("health_zoo", identity, fresh=given.fresh)
    known = [(each.get("ward"), each["name"]) for each in record.runs if "name" in each]
    pairs = [(each["illness"], each["seed"]) for each in record.runs if "illness" in each]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for title, patients in WARDS.items():
            for patient in patients:
                if (title, patient.name) not in known:
                    record.add(observed(title, patient, place))
                    print(record.runs[-1], flush=True)
        for name in ILLNESSES:
            for seed in SEEDS:
                if (name, seed) not in pairs:
                    record.add(recovered(name, seed, place))
                    print(record.runs[-1], flush=True)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(record.runs, identity["thresholds"]))
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
