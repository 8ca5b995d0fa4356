"""The whole loss a second time, in plain Python lists and slow on purpose: to compare with, not to use.

Written from the formulas alone. It shares no code with the package and no trick either: where the package multiplies
with weights worked out beforehand, this divides at the end.
"""

import math
from dataclasses import dataclass, field


@dataclass
class Response:
    """One rollout. Lists have one number per token, those that are not trained included."""

    reward: float
    trainable: list[bool]
    policy: list[float]
    old: list[float]
    sampler: list[float]
    reference: list[float]
    entropy: list[float]


@dataclass
class Settings:
    """Every choice of the objective by its published name."""

    advantage: str = "group_zscore"
    std: str = "sample"
    eps: float = 1e-4
    low: float = 0.2
    high: float = 0.2
    dual: float | None = None
    aggregation: str = "sequence_mean"
    length: int = 16
    beta: float = 0.0
    entropy_bonus: float = 0.0
    cap: float | None = None


@dataclass
class Parts:
    """What the tests compare beside the loss."""

    advantages: list[list[float]] = field(default_factory=list)
    clamped: int = 0
    clipped: int = 0


def advantages_of(rewards: list[float], settings: Settings) -> list[float]:
    """One number per rollout of a group."""
    count = len(rewards)
    if count < 2 or max(rewards) - min(rewards) <= 1e-6 * max(abs(r) for r in rewards):
        return [0.0] * count
    mean = math.fsum(rewards) / count
    if settings.advantage == "group_mean":
        return [r - mean for r in rewards]
    squares = math.fsum((r - mean) ** 2 for r in rewards)
    std = math.sqrt(squares / (count - 1 if settings.std == "sample" else count))
    return [(r - mean) / (std + settings.eps) for r in rewards]


def token_loss(response: Response, t: int, advantage: float, settings: Settings, parts: Parts) -> float:
    """The loss of one token before aggregation."""
    log_ratio = response.policy[t] - response.old[t]
    if abs(log_ratio) > 20:
        parts.clamped += 1
    ratio = math.exp(max(-20.0, min(20.0, log_ratio)))
    within = max(1 - settings.low, min(1 + settings.high, ratio))
    surrogate = min(ratio * advantage, within * advantage)
    if surrogate != ratio * advantage:
        parts.clipped += 1
    if settings.dual is not None and advantage < 0:
        surrogate = max(surrogate, settings.dual * advantage)
    correction = 1.0
    if settings.cap is not None:
        correction = min(settings.cap, math.exp(response.old[t] - response.sampler[t]))
    d = min(20.0, response.reference[t] - response.policy[t])
    kl = math.exp(d) - d - 1
    return -correction * surrogate + settings.beta * kl - settings.entropy_bonus * response.entropy[t]


def loss(groups: list[list[Response]], settings: Settings) -> tuple[float, Parts]:
    """The loss of a batch of groups."""
    parts = Parts()
    sums: list[float] = []
    counts: list[int] = []
    for group in groups:
        advantages = advantages_of([response.reward for response in group], settings)
        parts.advantages.append(advantages)
        for response, advantage in zip(group, advantages, strict=True):
            trained = [t for t in range(len(response.policy)) if response.trainable[t]]
            if trained:
                counts.append(len(trained))
                sums.append(math.fsum(token_loss(response, t, advantage, settings, parts) for t in trained))
    if not counts:
        return 0.0, parts
    if settings.aggregation == "sequence_mean":
        value = math.fsum(s / n for s, n in zip(sums, counts, strict=True)) / len(counts)
    elif settings.aggregation == "token_mean":
        value = math.fsum(sums) / sum(counts)
    elif settings.aggregation == "constant":
        value = math.fsum(sums) / (len(counts) * settings.length)
    else:
        value = math.fsum(sums) / len(counts)
    return value, parts
