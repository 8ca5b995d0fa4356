"""A tiny run in a folder: real model, real tokenizer, real loop."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from groupwise.config import load
from groupwise.training.inputs import read_inputs
from groupwise.training.setup import Run, assemble

PROMPTS = ["Say yes.", "Give one word.", "What is two plus two?", "Hello", "How are you?", "Answer briefly."]


def share_of_vowels(completions: list[str], **columns: Any) -> list[float]:
    return [sum(c in "aeiou" for c in text) / max(len(text), 1) for text in completions]


@pytest.fixture
def tiny_run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Build a run of the tiny model; keywords are sections of the configuration laid on small defaults."""
    made: list[Run] = []

    def build(
        reward: Callable[..., Any] = share_of_vowels,
        rows: list[dict[str, Any]] | None = None,
        held_out: list[dict[str, Any]] | None = None,
        **sections: Any,
    ) -> Run:
        tree: dict[str, Any] = {
            "model": {"name": "tiny"},
            "rollout": {"prompts_per_step": 3, "group_size": 4, "max_new_tokens": 8},
            "objective": {"kl": {"beta": 0.0}},
            "training": {"steps": 3, "learning_rate": 1e-3},
            "run": {"dir": str(tmp_path / f"run{len(made)}"), "sinks": [], "save_model": False},
        }
        for name, values in sections.items():
            tree[name] = {**tree[name], **values} if isinstance(tree.get(name), dict) else values
        rows = rows or [{"prompt": p} for p in PROMPTS]
        inputs = read_inputs(load(tree), rewards=[reward], train=rows, held_out=held_out)
        made.append(assemble(inputs, console=Console(quiet=True)))
        return made[-1]

    yield build
    for run in made:
        run.recorder.metrics.close()
