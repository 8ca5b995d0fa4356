"""Our step's time and memory against group, prompt length, completion length and batch: writes results/scaling.json.

python -m benchmarks.scaling
python -m benchmarks.scaling --sweeps group --steps 3

Every point is a process of its own, so that its peak memory is its own. Of the measured steps the fastest counts: what
disturbs a step on a machine that others use only ever makes it longer.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import facts, start
from benchmarks.cases import Case
from benchmarks.figures import scaling_lines
from benchmarks.record import Record

_SMALL = ("training.micro_batch_tokens=1024",)
SWEEPS: dict[str, tuple[tuple[str, ...], list[Case]]] = {
    "group": ((), [Case(prompts=2, prompt_tokens=128, group=g, new_tokens=32) for g in (2, 4, 8, 16, 32)]),
    "prompt-4": (
        (),
        [Case(prompts=2, prompt_tokens=n, group=4, new_tokens=32) for n in (64, 128, 256, 512, 1024)],
    ),
    "prompt-16": (
        (),
        [Case(prompts=2, prompt_tokens=n, group=16, new_tokens=32) for n in (64, 128, 256, 512, 1024)],
    ),
    "completion": (
        (),
        [Case(prompts=2, prompt_tokens=64, group=4, new_tokens=t) for t in (32, 64, 128, 256, 512)],
    ),
    "batch": ((), [Case(prompts=p, prompt_tokens=64, group=8, new_tokens=32) for p in (1, 2, 4, 8)]),
    "batch-1024": (
        _SMALL,
        [Case(prompts=p, prompt_tokens=64, group=8, new_tokens=32) for p in (1, 2, 4, 8)],
    ),
}
"""Name to our settings and cases; `batch-1024` allows 1,024 tokens in a forward pass."""


def measure(given: argparse.Namespace) -> None:
    """Every point that the file does not hold yet."""
    identity = {
        "precision": given.precision,
        "steps": given.steps,
        "machine": facts.machine(),
        "source": facts.source(),
        "threads": given.threads,
    }
    record = Record(f"scaling{given.name}", identity, fresh=given.fresh)
    for sweep in given.sweeps:
        settings, cases = SWEEPS[sweep]
        for case in cases:
            asked = {"case": asdict(case), "settings": list(settings)}
            if any(all(run[k] == v for k, v in asked.items()) for run in record.runs):
                continue
            record.add(facts.moment() | asked | point(case, settings, given))
            last = record.runs[-1]
            print(
                f"{sweep}: {case.prompts} x {case.prompt_tokens} x {case.group} x {case.new_tokens}: "
                f"{min(last['seconds']):.2f} s, {last['peak_memory_mb'] / 1024:.2f} GiB, load {last['load'][0]}",
                flush=True,
            )
    for line in scaling_lines(record.runs, {k: SWEEPS[k] for k in given.sweeps}):
        print(line)


def point(case: Case, settings: tuple[str, ...], given: argparse.Namespace) -> dict[str, Any]:
    """Steps of one size in a fresh process, the first not counted."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "prompts.jsonl"
        start.prompts_and_model(case, file)
        words = ["--case", json.dumps(asdict(case)), "--prompts", str(file), "--precision", given.precision]
        words += ["--set", *settings] if settings else []
        with start.ours("step", *words, threads=given.threads) as ours:
            versions = ours.ask("facts")["versions"]
            ours.ask("step")
            gemm = ours.ask("gemm")
            steps = [ours.ask("step") for _ in range(given.steps)]
    return {
        "seconds": [step["seconds"] for step in steps],
        "phases": steps[-1]["phases"],
        "peak_memory_mb": steps[-1]["peak_memory_mb"],
        "gemm": gemm,
        "versions": versions,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sweeps", nargs="+", choices=list(SWEEPS), default=list(SWEEPS))
    parser.add_argument("--steps", type=int, default=2, help="measured steps of each point")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--threads", type=int, default=facts.machine()["cores"])
    parser.add_argument("--name", default="", help="put behind the file's name, for a trial")
    parser.add_argument("--fresh", action="store_true", help="forget earlier points")
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
