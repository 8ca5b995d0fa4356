"""A run that can be stopped anywhere, and what of it has to be the same as if nothing had happened."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch

from groupwise.checkpoint.save import STATE, saved_checkpoints
from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.records import Finding, Severity
from groupwise.records.metrics_file import comparable, read_metrics

ROWS = [{"prompt": f"Give word number {i}.", "n": i} for i in range(7)]
HELD_OUT = [{"prompt": "And now?", "n": 9}]
KINDS: dict[str, dict[str, Any]] = {
    # The adapter's dropout draws from torch's own generator.
    "lora": {"lora": {"rank": 4, "dropout": 0.2}},
    # A critic has weights, an optimiser and values of the batch; a greedy baseline is a rollout beside the group.
    "critic": {"objective": {"preset": "ppo", "kl": {"beta": 0.05}}, "critic": {"learning_rate": 1e-3}},
    "greedy baseline": {"objective": {"preset": "remax", "kl": {"beta": 0.05}}},
    # Estimates of every prompt, masks drawn from the step, notes in the batch.
    "recipes": {
        "prompts": {"curriculum": {"difficulty": [0.5, 0.9], "steps": 4, "mastered": 0.8, "again_after": 2}},
        "rollout": {"confidence": {"threshold": 0.02, "redraws": 2}, "max_redraws": 3},
        "objective": {
            "kl": {"beta": 0.05, "reference_dropout": 0.2},
            "filter": {"max_tokens": 5},
            "teaching": {"text": " No.", "below": 0.1},
        },
        "evaluate": {"every_steps": 2, "pass_reward": 0.08},
    },
}
"""Sections of runs that have something of their own to remember."""


def restless(completions: list[str], **columns: Any) -> list[float]:
    """A reward that draws from Python's own generator, whose state a checkpoint has to hold."""
    return [
        sum(c.isdigit() for c in text) / max(len(text), 1) + 0.1 * random.random() for text in completions
    ]


def uneasy(history: History, facts: Facts) -> list[Finding]:
    """A health check that depends on every step so far, and whose findings begin, worsen and end."""
    rewards = history.all("reward/mean")
    kinds = {"early": history.step <= 2, "odd": history.step % 2 == 1}
    return [
        Finding(
            check="uneasy",
            kind=kind,
            severity=Severity.CRITICAL if history.step > 3 else Severity.WARNING,
            first_step=rewards.steps[0],
            last_step=history.step,
            summary=f"the mean of {len(rewards.values)} rewards is {rewards.mean!r}",
            evidence={"mean": rewards.mean},
            causes=(),
            remedies=(),
        )
        for kind, seen in kinds.items()
        if seen
    ]


def tree(folder: Path, **sections: Any) -> dict[str, Any]:
    """A configuration whose every step writes a checkpoint, between its updates too."""
    base: dict[str, Any] = {
        "model": {"name": "tiny"},
        "rollout": {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 6},
        "objective": {"kl": {"beta": 0.05}},
        "training": {
            "steps": 5,
            "learning_rate": 2e-3,
            "schedule": "linear",
            "updates_per_batch": 2,
            "mini_batches": 2,
        },
        "evaluate": {"every_steps": 2},
        "checkpoint": {"every_steps": 1, "every_minutes": 1e-9},
        "run": {"dir": str(folder), "sinks": [], "seed": 5},
    }
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values} if isinstance(values, dict) else values
    return base


def left_behind(folder: Path) -> dict[str, Any]:
    """Everything of a run that has to repeat bit for bit: by name, the bytes of a file or the numbers of a line."""
    found: dict[str, Any] = {
        f"metrics {line['step']}": comparable(line) for line in read_metrics(folder / "metrics.jsonl")
    }
    weights = ("model/*.safetensors", "model/adapter/*.safetensors")
    for pattern in ("health.jsonl", "rollouts/*", "samples/*", *weights):
        found |= {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.glob(pattern)}
    return found | _remembered(folder)


def _remembered(folder: Path) -> dict[str, Any]:
    """What the parts of a run remember at its end, less what counts seconds or bytes that hold seconds."""
    saved = saved_checkpoints(folder / "checkpoints")
    if not saved:
        return {}
    position, path = saved[-1]
    state = torch.load(path / STATE, weights_only=True)
    parts = {name: part for name, part in state.items() if name not in ("keeper", "recorder")}
    return {f"{name} at {position}": _plain(part) for name, part in parts.items()}


def _plain(value: Any) -> Any:
    """Values that are equal where every bit is, whatever they are."""
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), tuple(value.shape), value.reshape(-1).view(torch.uint8).numpy().tobytes())
    if isinstance(value, dict):
        return [(key, _plain(inner)) for key, inner in value.items()]
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return repr(value)


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names under which the two differ."""
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
