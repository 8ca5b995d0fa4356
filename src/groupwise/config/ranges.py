"""Typical ranges, as advice: `check` questions what lies far outside, once and by name. Nothing is refused.

Sources disagree, and say so: guides for full fine-tuning at 7B give learning rates from 5e-7 to 3e-6, some up to
2e-5; small models take more. Each entry says where it holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from groupwise.config.run import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What practice uses for one setting."""

    key: str
    """Dotted key."""
    low: float
    """Usual lower end."""
    high: float
    """Usual upper end."""
    why: str
    """What happens outside, and where the figures come from."""
    slack: float = 1.0
    """Factor beyond either end that is still not questioned."""


RANGES = (
    Range(
        key="rollout.group_size",
        low=4,
        high=64,
        why="small groups often have no spread; large ones cost much",
    ),
    Range(key="rollout.temperature", low=0.7, high=1.2, why="low: groups lose their spread; high: gibberish"),
    Range(
        key="rollout.max_new_tokens",
        low=8,
        high=4096,
        why="reasoning needs 512 to 4,096; short answers far less",
    ),
    Range(
        key="rollout.prompts_per_step",
        low=4,
        high=512,
        why="large runs use 64 to 512; few prompts make a noisy gradient",
    ),
    Range(key="objective.surrogate.low", low=0.1, high=0.3, why="for token ratios; sequence ratios use 3e-4"),
    Range(key="objective.surrogate.high", low=0.1, high=0.3, why="clip-higher (DAPO) uses 0.28"),
    Range(
        key="objective.kl.beta",
        low=0.001,
        high=0.1,
        why="large: nothing is learned; small: the leash is loose",
    ),
    Range(key="training.updates_per_batch", low=1, high=4, why="more reuse moves further off-policy"),
)
LEARNING_RATE_FULL = Range(
    key="training.learning_rate",
    low=5e-7,
    high=3e-6,
    why="full fine-tuning at 7B; guides go up to 2e-5, and models below 1B take 1e-6 to 5e-5",
    slack=20.0,
)
LEARNING_RATE_LORA = Range(
    key="training.learning_rate",
    low=1e-4,
    high=2e-4,
    why="LoRA trains few weights and takes about a hundred times the rate of full fine-tuning",
    slack=10.0,
)


def questions(config: RunConfig) -> list[str]:
    """One sentence for each setting far outside its usual range, in the order of the configuration."""
    asked = []
    rate = LEARNING_RATE_LORA if config.lora is not None else LEARNING_RATE_FULL
    for entry in (*RANGES, rate):
        value = _value(config, entry.key)
        if value is None or (value == 0 and entry.key == "objective.kl.beta"):
            continue
        if not entry.low / entry.slack <= value <= entry.high * entry.slack:
            asked.append(
                f"{entry.key} is {value:g}; usual is {entry.low:g} to {entry.high:g} ({entry.why}). Is it meant?"
            )
    return asked


def _value(config: RunConfig, key: str) -> float | None:
    node: object = config
    for part in key.split("."):
        node = getattr(node, part, None)
    return float(node) if isinstance(node, int | float) else None
