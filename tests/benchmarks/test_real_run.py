"""The sums that a real run is measured on."""

from __future__ import annotations

import json
import re

from benchmarks.facts import ROOT
from benchmarks.real_run import fresh_problems


def numbers(prompt: str) -> tuple[int, ...]:
    return tuple(sorted(int(n) for n in re.findall(r"\d+", prompt)))


def test_fresh_problems_stand_in_no_file_of_the_demo() -> None:
    known = {
        numbers(json.loads(line)["prompt"])
        for name in ("train", "held_out")
        for line in (ROOT / f"examples/first_run/{name}.jsonl").read_text().splitlines()
    }
    rows = fresh_problems(0)
    asked = [numbers(row["prompt"]) for row in rows]
    assert len(set(asked)) == 200
    assert not set(asked) & known
    assert all(sum(pair) == int(row["answer"]) for pair, row in zip(asked, rows, strict=True))
    assert fresh_problems(0) == rows
    assert fresh_problems(1) != rows
