"""Writes train.jsonl and held_out.jsonl: sums of two numbers from 2 to 99.

A pair stands on one side only, whichever way round it is asked, so no held-out sum was ever trained on.
Run it as `python make_data.py`; the same files come out each time.
"""

import json
import random
from pathlib import Path

HELD_OUT, TRAIN = 200, 2000


def main() -> None:
    rng = random.Random(2024)
    pairs = [(a, b) for a in range(2, 100) for b in range(a, 100)]
    rng.shuffle(pairs)
    here = Path(__file__).parent
    for name, some in (("held_out", pairs[:HELD_OUT]), ("train", pairs[HELD_OUT : HELD_OUT + TRAIN])):
        with (here / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for pair in some:
                a, b = pair if rng.random() < 0.5 else pair[::-1]
                row = {"prompt": f"What is {a} + {b}? Answer briefly.", "answer": str(a + b)}
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
