"""A configuration, data and a reward to start from."""

from __future__ import annotations

import json
import random
from importlib import resources
from pathlib import Path

from groupwise.errors import ConfigError

_HELD_OUT = 40  # sums, each asked in one of its two orders


def write_starter(folder: Path) -> list[Path]:
    """Write `config.yaml`, `train.jsonl`, `held_out.jsonl` and `reward.py` into a folder, which is made if need be.

    Raises:
        ConfigError: one of these files is there already, or the folder cannot be written; nothing is written then.
    """
    train, held_out = sums()
    starter = resources.files("groupwise.workbench") / "starter"
    files = {
        "config.yaml": (starter / "config.yaml").read_text(encoding="utf-8"),
        "reward.py": (starter / "reward.py").read_text(encoding="utf-8"),
        "train.jsonl": "".join(f"{json.dumps(row)}\n" for row in train),
        "held_out.jsonl": "".join(f"{json.dumps(row)}\n" for row in held_out),
    }
    taken = [name for name in files if (folder / name).exists()]
    if taken:
        raise ConfigError(
            f"{folder} has a {taken[0]} already, and nothing is replaced; choose another folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be written: {error.strerror or error}; choose another folder"
        ) from None
    return [folder / name for name in files]


def sums(seed: int = 0) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Questions of the form `What is 7 + 8? Answer briefly.` with both numbers in 1..19: to train on, and held out.

    a + b and b + a are on the same side, so that nothing held out is trained on in the other order.
    """
    order = random.Random(seed)
    pairs = [(a, b) for a in range(1, 20) for b in range(a, 20)]
    order.shuffle(pairs)
    held_out = [_row(*(pair if order.random() < 0.5 else pair[::-1])) for pair in pairs[:_HELD_OUT]]
    train = [_row(*each) for a, b in pairs[_HELD_OUT:] for each in dict.fromkeys([(a, b), (b, a)])]
    order.shuffle(train)
    return train, held_out


def _row(a: int, b: int) -> dict[str, str]:
    return {"prompt": f"What is {a} + {b}? Answer briefly.", "answer": str(a + b)}
