"""Writes train.jsonl and held_out.jsonl beside this file: brief answers preferred over wordy ones, to sums."""

import json
import random
from pathlib import Path

HERE = Path(__file__).parent
WORDY = (
    "Well, let me think about that for a moment. If I add them up carefully, I get {answer}.",
    "That is a great question! The sum of these two numbers would be {answer}, I believe.",
    "To solve this, we take the first number and add the second one. The result is {answer}.",
)


def main() -> None:
    chance = random.Random(0)
    pairs = [(a, b) for a in range(2, 50) for b in range(a, 50)]
    chance.shuffle(pairs)
    for name, part in (("train", pairs[:400]), ("held_out", pairs[400:500])):
        with (HERE / f"{name}.jsonl").open("w", encoding="utf-8", newline="\n") as file:
            for a, b in part:  # a pair of numbers is in one file only, whichever way round
                row = {
                    "prompt": [{"role": "user", "content": f"What is {a} + {b}?"}],
                    "chosen": str(a + b),
                    "rejected": chance.choice(WORDY).format(answer=a + b),
                }
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
