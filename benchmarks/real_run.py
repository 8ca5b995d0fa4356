"""The demo beside TRL, same task, reward, learning rate, precision and time: writes results/real_run-PRECISION.json.

python -m benchmarks.real_run                     # three seeds x two sides x 300 seconds of training

Runs one after the other, ours and TRL's in turns; who goes first alternates from seed to seed. Data and reward are
those of examples/first_run. Both models are measured by the same evaluation on sums that the demo neither trains on
nor holds out, 200 for each seed.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import facts, start
from benchmarks.record import Record

FRESH = 200
_DEMO = facts.ROOT / "examples/first_run"


def fresh_problems(seed: int, count: int = FRESH) -> list[dict[str, str]]:
    """Sums that stand in neither file of the demo, whichever way round."""
    from itertools import combinations_with_replacement

    known = {
        tuple(sorted(int(word) for word in row["prompt"].replace("?", " ").split() if word.isdigit()))
        for name in ("train", "held_out")
        for row in map(json.loads, (_DEMO / f"{name}.jsonl").read_text().splitlines())
    }
    rng = random.Random(f"fresh {seed}")
    left = [pair for pair in combinations_with_replacement(range(2, 100), 2) if pair not in known]
    rows = []
    for pair in rng.sample(left, count):
        a, b = pair if rng.random() < 0.5 else pair[::-1]
        rows.append({"prompt": f"What is {a} + {b}? Answer briefly.", "answer": str(a + b)})
    return rows


def measure(given: argparse.Namespace) -> None:
    """Every run that the file does not hold yet."""
    identity = {
        "seconds": given.seconds,
        "precision": given.precision,
        "settings": given.set,
        "trl_rollouts_per_pass": given.trl_batch or 96,
        "machine": facts.machine(),
        "source": facts.source(),
        "threads": given.threads,
        "held_out": FRESH,
    }
    record = Record(f"real_run-{given.precision}{given.name}", identity, fresh=given.fresh)
    with tempfile.TemporaryDirectory() as folder:
        for i, seed in enumerate(given.seeds):
            held_out = Path(folder) / f"fresh-{seed}.jsonl"
            held_out.write_text("".join(json.dumps(row) + "\n" for row in fresh_problems(seed)))
            untrained = ("untrained", dict)
            ours = ("ours", lambda seed=seed: run("ours", seed, given, Path(folder)))
            trl = ("trl", lambda seed=seed: run("trl", seed, given, Path(folder)))
            for side, train in (untrained, *((trl, ours) if i % 2 else (ours, trl))):
                if any(r["seed"] == seed and r["side"] == side for r in record.runs):
                    continue
                done = facts.moment() | {"seed": seed, "side": side} | train()
                model = "smollm2-135m" if side == "untrained" else str(Path(folder) / f"{side}-{seed}")
                measured = start.once("evaluate", "--model", model, "--held-out", str(held_out))
                done["pass@1"] = json.loads(measured)["pass@1"]
                record.add(done)
                steps = f", {len(done['steps'])} steps" if "steps" in done else ""
                print(
                    f"seed {seed}, {side}: held-out {done['pass@1']:.1%}{steps}, load {done['load'][0]}",
                    flush=True,
                )


def run(side: str, seed: int, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One training run; its model lies in the folder then."""
    words = ["--seed", str(seed), "--seconds", str(given.seconds), "--precision", given.precision]
    words += ["--save", str(folder / f"{side}-{seed}")]
    if side == "ours":
        settings = ["--set", *given.set] if given.set else []
        process = start.ours("train", *words, *settings, threads=given.threads)
    else:
        batch = ["--batch", str(given.trl_batch)] if given.trl_batch else []
        model = start.once("model")
        process = start.trl("train", "--model", model, *words, *batch, threads=given.threads)
    with process:
        gemm = {"gemm": process.ask("gemm")}
        return process.ask("train") | gemm


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=300, help="of training, for each run")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--trl-batch", type=int, help="TRL's rollouts per forward pass; all 96 by default")
    parser.add_argument("--threads", type=int, default=facts.machine()["cores"])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="our configuration")
    parser.add_argument("--name", default="", help="put behind the file's name, for a trial")
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
