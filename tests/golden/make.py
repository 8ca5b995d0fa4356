"""The golden run: ten steps of the tiny model. `python tests/golden/make.py` writes ten_steps.json anew.

Do so only when a change of the numbers is meant, and say why in the commit.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import groupwise
from groupwise.records.metrics_file import comparable

FILE = Path(__file__).parent / "ten_steps.json"
PROMPTS = [
    "Say yes.",
    "Give one word.",
    "What is two plus two?",
    "Hello",
    "How are you?",
    "Answer briefly.",
    "One two",
]


def share_of_digits(completions: list[str], **columns: Any) -> list[float]:
    return [sum(c.isdigit() for c in text) / max(len(text), 1) for text in completions]


def golden_run(folder: Path) -> list[dict[str, float]]:
    result = groupwise.train(
        {
            "model": "tiny",
            "rollout": {"prompts_per_step": 3, "group_size": 4, "max_new_tokens": 8, "temperature": 0.9},
            "objective": {"kl": {"beta": 0.05}},
            "training": {
                "steps": 10,
                "learning_rate": 2e-3,
                "schedule": "linear",
                "warmup_steps": 2,
                "updates_per_batch": 2,
                "mini_batches": 2,
                "micro_batch_rollouts": 3,
            },
            "run": {"dir": str(folder), "sinks": [], "save_model": False, "seed": 7},
        },
        rewards=[share_of_digits],
        train=[{"prompt": p} for p in PROMPTS],
    )
    return [comparable(line) for line in result.metrics]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        lines = golden_run(Path(folder) / "run")
    FILE.write_text("[\n" + ",\n".join(json.dumps(line, sort_keys=True) for line in lines) + "\n]\n")
    print(f"wrote {FILE}")
