"""What a step of the demo spends outside the model, and the way to the first rollout: writes results/overhead.json.

python -m benchmarks.overhead                 # three starts of `groupwise train`, the first of them unpacking the model

The command runs as a user starts it, with a stopwatch around its parts (sides/command.py). Work of the model is
sampling, log-probs, forward, backward and optimiser; outside are rewards, advantages, metrics, records, TensorBoard,
the terminal and checkpoints.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import facts
from benchmarks.figures import outside_model
from benchmarks.record import Record


def run_command(folder: Path, *, steps: int, cache: Path | None, settings: list[str]) -> dict[str, Any]:
    """One run of the demo; with an empty cache the embedded model is unpacked first."""
    out = folder / "watched.json"
    env = facts.environment() | {"GROUPWISE_BENCH_BEGAN": repr(time.time())}
    if cache is not None:
        env["GROUPWISE_CACHE"] = str(cache)
    words = [
        "train",
        str(facts.ROOT / "examples/first_run/config.yaml"),
        f"training.steps={steps}",
        f"run.dir={folder / 'run'}",
        "run.overwrite=true",
        "run.save_model=false",
        "evaluate.at_start=false",
        "evaluate.at_end=false",
        *settings,
    ]
    subprocess.run(
        [sys.executable, "-m", "benchmarks.sides.command", str(out), *words],
        cwd=facts.ROOT,
        env=env,
        check=True,
        stdout=subprocess.DEVNULL if os.environ.get("CI") else None,
    )
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--steps", type=int, default=12, help="of the demo; the first and the last are not counted"
    )
    parser.add_argument("--starts", type=int, default=2, help="warm starts")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="our configuration")
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    given = parser.parse_args()
    identity = {
        "steps": given.steps,
        "settings": given.set,
        "machine": facts.machine(),
        "source": facts.source(),
        "versions": facts.versions("torch", "transformers", "pyarrow", "tensorboard"),
    }
    record = Record("overhead", identity, fresh=given.fresh)
    kinds = ["unpacking", *["warm"] * given.starts]
    with tempfile.TemporaryDirectory() as folder:
        for i, kind in enumerate(kinds):
            if i < len(record.runs):
                continue
            cache = Path(folder) / "cache" if kind == "unpacking" else None
            steps = given.steps if i == len(kinds) - 1 else 1
            moment = facts.moment()
            found = run_command(Path(folder), steps=steps, cache=cache, settings=given.set)
            record.add(moment | {"kind": kind} | found)
            print(kind, {name: round(at, 2) for name, at in found["marks"].items()}, flush=True)
    print(json.dumps(outside_model(record.runs[-1]["steps"][1:]), indent=1))


if __name__ == "__main__":
    main()
