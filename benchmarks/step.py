"""One GRPO step against TRL's, step by step in turns: writes results/step-CASE-PRECISION.json.

python -m benchmarks.step short     # 8 prompts of 46 tokens x 8 rollouts x 32 new tokens
python -m benchmarks.step long      # 4 prompts of 512 tokens x 8 rollouts x 128 new tokens
python -m benchmarks.step trial     # shows in a minute that both sides run

Each side lives in its own process, with the same prompts, lengths, precision, optimiser and threads. A pair is one step
of each, next to each other in time; who goes first alternates. The first pair after a start warms up and is not kept.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks import facts, start
from benchmarks.cases import CASES
from benchmarks.figures import pairs_summary
from benchmarks.record import Record
from benchmarks.turns import Side

TRL_BATCH = {"long": 8}
"""TRL's rollouts per forward pass where it cannot take all at once in 24 GB; else all."""
MEMORY_GB = {"short": 16.0, "long": 16.0}
"""Both sides together; with less a run would swap, or be ended."""
RESTS = ("long",)
"""Cases whose sides hand memory that they do not use back to the system after their turn: 24 GB hold one at work."""


def measure(given: argparse.Namespace) -> None:
    """Pairs until the file has as many as asked for."""
    case = CASES[given.case]
    batch = given.trl_batch or TRL_BATCH.get(given.case, case.rollouts)
    identity = {
        "case": asdict(case),
        "precision": given.precision,
        "trl_rollouts_per_pass": batch,
        "settings": given.set,
        "machine": facts.machine(),
        "source": facts.source(),
        "threads": given.threads,
    }
    record = Record(f"step-{given.case}-{given.precision}{given.name}", identity, fresh=given.fresh)
    if len(record.runs) >= given.pairs:
        print(f"{record.path} has {len(record.runs)} pairs; --fresh measures anew")
        return
    free, needed = facts.available_gb(), MEMORY_GB.get(given.case, 0.0)
    if free is not None and free < needed:
        raise SystemExit(f"{free} GB of memory are free and both sides together need about {needed}")
    with tempfile.TemporaryDirectory() as folder:
        prompts = Path(folder) / "prompts.jsonl"
        model = start.prompts_and_model(case, prompts)
        words = [
            "--case",
            json.dumps(asdict(case)),
            "--prompts",
            str(prompts),
            "--precision",
            given.precision,
        ]
        settings = ["--set", *given.set] if given.set else []
        trl_words = ["--model", model, "--batch", str(batch)]
        with (
            start.ours("step", *words, *settings, threads=given.threads) as ours,
            start.trl("step", *words, *trl_words, threads=given.threads) as trl,
        ):
            sides = {"ours": ours, "trl": trl}
            known = {name: side.ask("facts") for name, side in sides.items()}
            if sorted(known["ours"]["prompts"]) != sorted(known["trl"]["prompts"]):
                raise SystemExit("the sides do not agree on the prompts' lengths")
            rests = given.case in RESTS
            warm = pair(sides, list(sides), rests=rests, count_flops=True)
            print(f"warm-up: ours {warm['ours']['seconds']:.1f} s, TRL {warm['trl']['seconds']:.1f} s")
            while len(record.runs) < given.pairs:
                order = ["ours", "trl"] if len(record.runs) % 2 else ["trl", "ours"]
                run = facts.moment() | {"known": known, "order": order} | pair(sides, order, rests=rests)
                run["executed_flops"] = warm["ours"]["executed_flops"]
                check(run, case.completion_tokens)
                record.add(run)
                ratio = run["trl"]["seconds"] / run["ours"]["seconds"]
                print(
                    f"pair {len(record.runs)} of {given.pairs}: ours {run['ours']['seconds']:.1f} s, "
                    f"TRL {run['trl']['seconds']:.1f} s, ratio {ratio:.2f}, load {run['load'][0]}",
                    flush=True,
                )
    print(json.dumps(pairs_summary({"identity": record.identity, "runs": record.runs}), indent=1))


def pair(
    sides: dict[str, Side], order: list[str], *, rests: bool, count_flops: bool = False
) -> dict[str, dict]:
    """One step of each, and the rate of matrix products before and after ours."""
    found: dict[str, dict] = {}
    for name in order:
        if name == "ours":
            before = sides["ours"].ask("gemm")
            found["ours"] = sides["ours"].ask("step", count_flops=count_flops)
            found["gemm"] = {"before": before, "after": sides["ours"].ask("gemm")}
        else:
            found[name] = sides[name].ask("step")
        if rests:
            sides[name].ask("rest")
    return found


def check(run: dict, completion_tokens: int) -> None:
    """Both did the same work, and neither could skip a rollout."""
    for name in ("ours", "trl"):
        if run[name]["completion_tokens"] != completion_tokens:
            raise SystemExit(
                f"{name} made {run[name]['completion_tokens']} tokens, not {completion_tokens}: a length was not forced"
            )
    if run["ours"]["without_advantage"]:
        raise SystemExit("a rollout had advantage 0, so it was not computed")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", choices=list(CASES))
    parser.add_argument("--pairs", type=int, default=3, help="measured pairs, those in the file included")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument(
        "--trl-batch",
        type=int,
        help="TRL's rollouts per forward pass; all in the short case, 8 in the long one by default",
    )
    parser.add_argument("--threads", type=int, default=facts.machine()["cores"])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="our configuration")
    parser.add_argument("--name", default="", help="put behind the file's name, such as -checkpointing")
    parser.add_argument("--fresh", action="store_true", help="forget earlier pairs")
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
