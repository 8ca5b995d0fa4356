"""How long a thousand short programs take to be graded: writes docs/results/sandbox.md.

python benchmarks/sandbox.py [--programs 1000] [--isolation bubblewrap restricted]
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections import Counter
from pathlib import Path

from groupwise.rewards.sandbox.batch import grade_all, settle
from groupwise.rewards.sandbox.pool import close_pools

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "results" / "sandbox.md"
TESTS = "assert f(2) == 4\nassert f(-3) == 9\nassert f(0) == 0"
CASES = [{"stdin": "2\n", "stdout": "4\n"}, {"stdin": "-3\n", "stdout": "9\n"}]


def programs(form: str, count: int) -> tuple[list[str], list[object]]:
    """Programs that all differ, every second one wrong, and their tests."""
    if form == "asserts":
        made = [
            f"```python\ndef f(n):\n    # number {i}\n    return n * n + {i % 2}\n```" for i in range(count)
        ]
        return made, [TESTS] * count
    made = [f"```python\n# number {i}\nprint(int(input()) ** 2 + {i % 2})\n```" for i in range(count)]
    return made, [CASES] * count


def measure(isolation: str, form: str, count: int) -> tuple[float, float, Counter[str]]:
    """Seconds, load average before, and outcomes."""
    how = settle(isolation=isolation, python=None, seconds=30.0)  # type: ignore[arg-type]
    completions, tests = programs(form, count)
    load = os.getloadavg()[0]
    begun = time.monotonic()
    grades = grade_all(completions, tests, None, how, stop=True)
    seconds = time.monotonic() - begun
    close_pools()
    return seconds, load, Counter(grade.outcome for grade in grades if grade is not None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--isolation", nargs="+", default=["bubblewrap", "restricted"])
    options = parser.parse_args()
    machine = (
        f"{platform.machine()} with {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}"
    )
    lines = [
        "# How long grading takes",
        "",
        f"`python benchmarks/sandbox.py --programs {options.programs}`, on {machine}. Every second",
        "program is wrong. The load average is that of the minute before: above the number of cores, other work",
        "had its share of them.",
        "",
        "| isolation | tests | programs | seconds | ms per program | load before | outcomes |",
        "|---|---|---|---|---|---|---|",
    ]
    for isolation in options.isolation:
        for form in ("asserts", "script"):
            seconds, load, outcomes = measure(isolation, form, options.programs)
            told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
            lines.append(
                f"| {isolation} | {form} | {options.programs} | {seconds:.1f} "
                f"| {1000 * seconds / options.programs:.1f} | {load:.1f} | {told} |"
            )
            print(lines[-1], flush=True)
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
