"""Tokens per second of our sampler and of vLLM on this processor, in turns: writes results/sampler-CASE-PRECISION.json.

python -m benchmarks.sampler short

The same prompts as token ids, the same weights and precision, temperature 1, forced lengths, the sampled token's
log-prob returned by both, the prompts' keys and values computed anew in each batch (weights change between batches of
training) and shared by a prompt's rollouts on both sides.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks import facts, start
from benchmarks.cases import CASES
from benchmarks.record import Record

_SETTLES = 3.0  # seconds after its last request in which vLLM's worker goes on looking for another


def measure(given: argparse.Namespace) -> None:
    """Rounds until the file has as many as asked for."""
    case = CASES[given.case]
    identity = {
        "case": asdict(case),
        "precision": given.precision,
        "settings": given.set,
        "machine": facts.machine(),
        "source": facts.source(),
        "threads": given.threads,
    }
    record = Record(f"sampler-{given.case}-{given.precision}{given.name}", identity, fresh=given.fresh)
    if len(record.runs) >= given.rounds:
        print(f"{record.path} has {len(record.runs)} rounds; --fresh measures anew")
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "prompts.jsonl"
        model = start.prompts_and_model(case, file)
        words = ["--case", json.dumps(asdict(case)), "--precision", given.precision]
        settings = ["--set", *given.set] if given.set else []
        with (
            start.ours("sample", *words, "--prompts", str(file), *settings, threads=given.threads) as ours,
            start.vllm(*words, "--model", model, threads=given.threads) as vllm,
        ):
            known = {"ours": ours.ask("facts"), "vllm": vllm.ask("facts")}
            prompts = known["ours"].pop("prompts")
            turns = {
                "ours": lambda: ours.ask("generate"),
                "vllm": lambda: vllm.ask("generate", prompts=prompts),
            }
            for turn in turns.values():
                turn()
            time.sleep(_SETTLES)
            while len(record.runs) < given.rounds:
                order = ["ours", "vllm"] if len(record.runs) % 2 else ["vllm", "ours"]
                run = facts.moment() | {"known": known, "order": order}
                for name in order:
                    run[name] = turns[name]()
                    if name == "vllm":
                        time.sleep(_SETTLES)
                for name in order:
                    if run[name]["tokens"] != case.completion_tokens:
                        raise SystemExit(
                            f"{name} made {run[name]['tokens']} tokens, not {case.completion_tokens}"
                        )
                record.add(run)
                rates = {name: run[name]["tokens"] / run[name]["seconds"] for name in turns}
                print(
                    f"round {len(record.runs)} of {given.rounds}: ours {rates['ours']:.0f} tokens/s, "
                    f"vLLM {rates['vllm']:.0f}, ratio {rates['ours'] / rates['vllm']:.2f}, load {run['load'][0]}",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", choices=list(CASES))
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds, those in the file included")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--threads", type=int, default=facts.machine()["cores"])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="our configuration")
    parser.add_argument("--name", default="", help="put behind the file's name, such as -checkpointing")
    parser.add_argument("--fresh", action="store_true", help="forget earlier rounds")
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
