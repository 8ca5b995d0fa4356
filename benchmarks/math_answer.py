"""How many answers a second `math_answer` scores: writes docs/results/math_answer.md.

Plain numbers are compared in the calling process, on GSM8K's own solutions; expressions in child processes, on pairs
that differ in form, half of them wrong. Every pair of expressions is another one, so nothing is answered from memory.

python benchmarks/math_answer.py
"""

import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

from groupwise.rewards.mathematics import workers
from groupwise.rewards.scorers.math_answer import math_answer

ROOT = Path(__file__).parent.parent
PAIRS = 400


def solutions() -> list[str]:
    lines = (ROOT / "examples/gsm8k/data/test.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["answer"] for line in lines]


def expressions(start: int) -> tuple[list[str], list[str]]:
    """Answers and golds: (x + n)^2 - n^2 against x^2 + 2 n x, and sqrt(n^2 (n + 1)) against n sqrt(n + 1)."""
    said, golds = [], []
    for n in range(start, start + PAIRS // 2):
        wrong = n % 2
        said += [rf"\boxed{{(x+{n})^2-{n * n}}}", rf"The answer is $\sqrt{{{n * n * (n + 1)}}}$."]
        golds += [f"x^2+{2 * n + wrong}x", rf"{n}\sqrt{{{n + 1 + wrong}}}"]
    return said, golds


def rate(call: Callable[[], list[float | None]], count: int) -> float:
    began = time.perf_counter()
    call()
    return count / (time.perf_counter() - began)


def main() -> None:
    golds = solutions()
    said, right = expressions(10)
    assert math_answer(said, right) == [float(n % 2 == 0) for n in range(10, 10 + PAIRS // 2) for _ in (0, 1)]
    rows = [("GSM8K's solutions, first time", rate(lambda: math_answer(golds, golds), len(golds)))]
    rows.append(
        (
            "GSM8K's solutions again",
            max(rate(lambda: math_answer(golds, golds), len(golds)) for _ in range(3)),
        )
    )
    short = [gold.rpartition("#### ")[2] for gold in golds]
    rows.append(
        ("the figure alone", max(rate(lambda: math_answer(short, golds), len(golds)) for _ in range(3)))
    )
    fresh = [expressions(start) for start in (1000, 2000, 3000)]
    rows.append(
        (
            "expressions, each another",
            max(rate(lambda pair=pair: math_answer(*pair), PAIRS) for pair in fresh),
        )
    )
    workers.shared().close()
    first = rate(lambda: math_answer([r"\sqrt{8}"], [r"2\sqrt{2}"]), 1)
    text = "# How fast `math_answer` is\n\nMade by `python benchmarks/math_answer.py`"
    text += f" on {os.cpu_count()} processors, Python {platform.python_version()}.\n\n"
    text += "| what | answers per second |\n|---|---|\n"
    text += "".join(f"| {what} | {value:,.0f} |\n" for what, value in rows)
    text += (
        f"\nStarting a process to compare expressions in, with the first answer: {1 / first:.1f} s, once.\n"
    )
    (ROOT / "docs/results/math_answer.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
