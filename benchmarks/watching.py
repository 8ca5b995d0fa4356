"""What metrics, checks and records cost a step of the demo, in pairs: writes docs/results/watching.md.

python -m benchmarks.watching                 # three pairs of runs of twelve steps: about fifteen minutes on two cores

Each pair is the same run twice, step by step on the same rollouts: once as it is, and once without checks, rollout
files, TensorBoard and terminal. Which comes first changes from pair to pair. A step is everything until the loop asks
for the next. What is left in both (the metrics themselves, and metrics.jsonl) is timed directly and added.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import facts
from benchmarks.facts import median
from benchmarks.overhead import run_command
from benchmarks.record import Record

PAGE = facts.ROOT / "docs/results/watching.md"
BARE = ["health.every_steps=null", "run.save_rollouts=false", "run.sinks=[]"]
LIMIT = 0.03


def cost(pairs: Sequence[tuple[Sequence[dict[str, Any]], Sequence[dict[str, Any]]]]) -> dict[str, float]:
    """Shares of a step's time, as medians over the steps of all pairs.

    Args:
        pairs: the steps of the run as it is, and of the same without.
    """
    both = [(one, other) for watched, bare in pairs for one, other in zip(watched, bare, strict=True)]
    paired = [one["seconds"] / other["seconds"] - 1 for one, other in both]
    metrics = [other["watch: metrics"] / other["seconds"] for _, other in both]
    lines = [other["write"] / other["seconds"] for _, other in both]
    return {
        "seconds": median([other["seconds"] for _, other in both]),
        "checks, rollout files and sinks (paired)": median(paired),
        "metrics (timed)": median(metrics),
        "metrics.jsonl (timed)": median(lines),
        "all": median(paired) + median(metrics) + median(lines),
        "written and checked (timed in the run as it is)": median(
            [one["write"] / one["seconds"] for one, _ in both]
        ),
    }


def page(found: dict[str, float], runs: Sequence[dict[str, Any]], identity: dict[str, Any]) -> str:
    """The results for people."""
    rows = [f"| {name} | {share:.2%} |" for name, share in found.items() if name != "seconds"]
    verdict = "below" if found["all"] < LIMIT else "NOT below"
    return "\n".join(
        [
            "# What watching costs",
            "",
            "Written by `python -m benchmarks.watching`: the demo of examples/first_run, each pair of runs on the same",
            f"rollouts, {len(runs)} runs of {identity['steps']} steps, {found['seconds']:.2f} s a step without.",
            "",
            "| | share of a step |",
            "| --- | --- |",
            *rows,
            "",
            f"All of it is {verdict} {LIMIT:.0%} of a step.",
            "",
            f"{facts.in_words(identity['machine'])}; source {identity['source']}.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument(
        "--steps", type=int, default=12, help="of the demo; the first and the last are not counted"
    )
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    given = parser.parse_args()
    identity = {
        "steps": given.steps,
        "machine": facts.machine(),
        "source": facts.source(),
        "versions": facts.versions("torch", "transformers", "pyarrow", "tensorboard"),
    }
    record = Record("watching", identity, fresh=given.fresh)
    order = [
        kind for pair in range(given.pairs) for kind in (("as it is", "bare"), ("bare", "as it is"))[pair % 2]
    ]
    with tempfile.TemporaryDirectory() as folder:
        for i, kind in enumerate(order):
            if i < len(record.runs):
                continue
            moment = facts.moment()
            settings = BARE if kind == "bare" else []
            found = run_command(Path(folder), steps=given.steps, cache=None, settings=settings)
            record.add(moment | {"kind": kind} | found)
            print(kind, [round(step["seconds"], 2) for step in found["steps"]], flush=True)
    # The first step holds what is done once.
    by_kind = {k: [run["steps"][1:] for run in record.runs if run["kind"] == k] for k in ("as it is", "bare")}
    pairs = list(zip(by_kind["as it is"], by_kind["bare"], strict=True))
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(cost(pairs), record.runs, record.identity))
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
