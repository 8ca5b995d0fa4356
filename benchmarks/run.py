"""Runs the benchmarks one after the other and writes RESULTS.md: what `make bench` does.

python -m benchmarks.run                      # everything, in hours
python -m benchmarks.run sampler overhead     # these parts

What a part has measured already is kept, so a run that was interrupted goes on where it stood; each part alone takes
--fresh to begin anew. bfloat16 is measured where the processor has it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks import facts, results

_BFLOAT16 = ["--precision", "bfloat16"]
PARTS: dict[str, list[list[str]]] = {
    "overhead": [["overhead"]],
    "watching": [["watching"]],
    "sampler": [["sampler", "short"], ["sampler", "short", *_BFLOAT16]],
    "step": [
        ["step", "short"],
        ["step", "long"],
        ["step", "short", *_BFLOAT16],
        [
            "step",
            "short",
            "--pairs",
            "1",
            "--name=-checkpointing",
            "--set",
            "training.gradient_checkpointing=true",
        ],
    ],
    "scaling": [["scaling"]],
    "plan": [["plan"]],
    "overlap": [["overlap"]],
    "real_run": [["real_run"], ["real_run", *_BFLOAT16]],
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all by default")
    given = parser.parse_args()
    failed = []
    for part in given.parts or PARTS:
        for words in PARTS[part]:
            if "bfloat16" in words and not facts.has_bfloat16():
                print(f"left out, since this processor has no bfloat16: {' '.join(words)}")
                continue
            print(f"--- {' '.join(words)}", flush=True)
            name, *rest = words
            if subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *rest], cwd=facts.ROOT).returncode:
                failed.append(" ".join(words))
    results.main()
    if failed:
        sys.exit(f"these parts failed, and the others went on: {'; '.join(failed)}")


if __name__ == "__main__":
    main()
