"""Typical ranges, as advice: `check` questions what lies far outside, once and by name. Nothing is refused.

Sources disagree, and each entry says whose figures it holds. Far outside means well beyond the usual: a factor of 4
for counts and coefficients and of 1.5 for the temperature, unless an entry gives a reason for another bound. Small runs
are lawful and not nagged: a batch is questioned only where its gradient can be little but noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from groupwise.config.choice import Choice
from groupwise.config.run import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What practice uses for one setting, or for the product of several."""

    key: str
    """Dotted key, or several with ` x ` between them for their product."""
    low: float
    """Usual lower end."""
    high: float
    """Usual upper end."""
    least: float
    """The smallest value that is not questioned."""
    most: float
    """The largest value that is not questioned."""
    why: str
    """What happens outside."""
    source: str
    """Whose figures these are."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The settings that it is about."""
        return tuple(self.key.split(" x "))


RANGES = (
    Range(
        key="rollout.group_size",
        low=4,
        high=64,
        least=3,  # of two rollouts the z-score knows only which was better
        most=256,
        why="small groups often have no spread; large ones cost much",
        source="DeepSeekMath samples 64, DeepSeek-R1 and DAPO 16, TRL 8 by default",
    ),
    Range(
        key="rollout.temperature",
        low=0.7,
        high=1.2,
        least=0.7 / 1.5,
        most=1.2 * 1.5,
        why="low: groups lose their spread; high: gibberish",
        source="DAPO and TRL's default are 1",
    ),
    Range(
        key="rollout.max_new_tokens",
        low=512,
        high=4096,
        least=8,  # a word or a number with its end takes no more
        most=32768,  # DeepSeek-R1 and DAPO reason longer than guides advise
        why="for reasoning; short answers need far less",
        source="guides; DeepSeekMath used 1,024, DAPO 20,480",
    ),
    Range(
        key="rollout.prompts_per_step",
        low=64,
        high=512,
        least=2,
        most=2048,
        why="few prompts make a noisy gradient",
        source="guides; DeepSeekMath used 16, DeepSeek-R1 32, DAPO 512",
    ),
    Range(
        key="rollout.prompts_per_step x rollout.group_size",
        low=512,
        high=2048,
        least=16,
        most=16384,
        why="responses a step; few make a noisy gradient, many cost much before anything is learned",
        source="guides; DeepSeek-R1 used 512, DeepSeekMath 1,024, DAPO 8,192",
    ),
    Range(
        key="objective.surrogate.low",
        low=0.1,
        high=0.3,
        least=0.025,
        most=0.9,  # from 1 on nothing is clipped
        why="of the token ratio; narrow clips stop learning, wide ones do not hold it",
        source="PPO and DAPO use 0.2",
    ),
    Range(
        key="objective.surrogate.high",
        low=0.1,
        high=0.3,
        least=0.025,
        most=1.2,
        why="of the token ratio; narrow clips stop learning, wide ones do not hold it",
        source="PPO uses 0.2, DAPO's clip-higher 0.28",
    ),
    Range(
        key="objective.kl.beta",
        low=0.001,
        high=0.1,
        least=0.001 / 4,
        most=0.4,
        why="large: nothing is learned; small: the leash is loose",
        source="DeepSeekMath uses 0.04, DeepSeek-R1 0.001, DAPO none",
    ),
    Range(
        key="dpo.beta",
        low=0.01,
        high=0.5,
        least=0.01 / 4,
        most=2.0,
        why="large: the policy hardly moves; small: it moves far beyond what the pairs say",
        source="the paper uses 0.1 and 0.5, TRL 0.1, Zephyr 0.1",
    ),
    Range(
        key="training.updates_per_batch",
        low=1,
        high=4,
        least=1,
        most=16,
        why="more reuse moves further off-policy",
        source="DeepSeekMath and TRL's default are 1; PPO makes 3 to 10 passes",
    ),
)
LEARNING_RATE_FULL = Range(
    key="training.learning_rate",
    low=5e-7,
    high=3e-6,
    least=5e-7 / 4,
    most=8e-5,  # 4 times the largest that a guide gives
    why="full training at 7B; models below 1B take up to 5e-5",
    source="DeepSeekMath and DAPO use 1e-6, DeepSeek-R1 3e-6, some guides up to 2e-5",
)
LEARNING_RATE_LORA = Range(
    key="training.learning_rate",
    low=1e-4,
    high=2e-4,
    least=1e-5,  # recipes that take ten times the rate of full training begin here
    most=8e-4,
    why="LoRA trains few weights and takes many times the rate of full training",
    source="guides; others find ten times the full rate best",
)


def questions(config: RunConfig) -> list[str]:
    """One sentence for each setting far outside its usual range, in the order of the configuration.

    Raises:
        AttributeError: an entry names a setting that does not exist.
    """
    asked: dict[str, str] = {}
    rate = LEARNING_RATE_LORA if config.lora is not None else LEARNING_RATE_FULL
    for entry in (*RANGES, rate):
        values = [_value(config, key) for key in entry.keys]
        given = [value for value in values if value is not None]
        off = entry.key == "objective.kl.beta" and given == [0]  # no leash is a choice, not an oversight
        if len(given) < len(values) or off or asked.keys() & set(entry.keys):
            continue
        value = math.prod(given)
        if not entry.least <= value <= entry.most:
            asked[entry.key] = (
                f"{entry.key} is {value:,g}; usual is {entry.low:,g} to {entry.high:,g} ({entry.why}; {entry.source}). "
                "Is it meant?"
            )
    return list(asked.values())


def _value(config: RunConfig, key: str) -> float | None:
    """The setting's value; None for a setting that the chosen function of a registry does not have."""
    node: object = config
    for part in key.split("."):
        if isinstance(node, Choice):
            if part not in node.settings:
                return None
            node = node.settings[part]
        else:
            node = getattr(node, part)
    return None if node is None else float(node)  # type: ignore[arg-type]
