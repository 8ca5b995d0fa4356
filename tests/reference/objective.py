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
    discount: float = 1.0
    ratio: str = "token"
    surrogate: str = "clip"
    low: float = 0.2
    high: float = 0.2
    dual: float | None = None
    bound: float = 2.0
    weight: str = "logprob"
    aggregation: str = "sequence_mean"
    length: int = 16
    kl: str = "k3"
    beta: float = 0.0
    cap_token: float | None = None
    cap_rollout: float | None = None
    entropy_bonus: float = 0.0
    cap: float | None = None


@dataclass
class Parts:
    """What the tests compare beside the loss."""

    advantages: list[list[list[float]]] = field(default_factory=list)
    clamped: int = 0
    clipped: int = 0
    capped: int = 0


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def std_of(values: list[float], kind: str) -> float:
    squares = math.fsum((v - mean(values)) ** 2 for v in values)
    return math.sqrt(squares / (len(values) - 1 if kind == "sample" else len(values)))


def all_equal(values: list[float]) -> bool:
    return len(values) < 2 or max(values) - min(values) <= 1e-6 * max(abs(v) for v in values)


def of_group(rewards: list[float], settings: Settings) -> list[float]:
    """One number per rollout of a group, from the rewards of that group alone."""
    count = len(rewards)
    if all_equal(rewards):
        return [0.0] * count
    centre = mean(rewards)
    if settings.advantage == "group_mean":
        return [r - centre for r in rewards]
    if settings.advantage == "leave_one_out":
        return [r - mean([o for j, o in enumerate(rewards) if j != i]) for i, r in enumerate(rewards)]
    if settings.advantage == "sign":
        close = 1e-6 * max(abs(r) for r in rewards)
        return [0.0 if abs(r - centre) <= close else math.copysign(1.0, r - centre) for r in rewards]
    if settings.advantage == "rank":
        below = [sum(o < r for o in rewards) for r in rewards]
        equal = [sum(o == r for o in rewards) for r in rewards]
        return [(b + (e - 1) / 2) / (count - 1) - 0.5 for b, e in zip(below, equal, strict=True)]
    return [(r - centre) / (std_of(rewards, settings.std) + settings.eps) for r in rewards]


def advantages_of(groups: list[list[Response]], settings: Settings) -> list[list[list[float]]]:
    """Per group and rollout one number per trained token."""
    lengths = [[sum(response.trainable) for response in group] for group in groups]
    rewards = [[response.reward for response in group] for group in groups]
    if settings.advantage == "token_whitening":
        returns = [
            [[r * settings.discount ** (n - 1 - t) for t in range(n)] for r, n in zip(rs, ns, strict=True)]
            for rs, ns in zip(rewards, lengths, strict=True)
        ]
        every = [x for group in returns for row in group for x in row]
        if all_equal(every):
            return [[[0.0] * len(row) for row in group] for group in returns]
        spread = std_of(every, "population") + settings.eps
        return [[[(x - mean(every)) / spread for x in row] for row in group] for group in returns]
    if settings.advantage == "batch_zscore":
        spread = std_of([r for rs in rewards for r in rs], settings.std) + settings.eps
        scalars = [[0.0 if all_equal(rs) else (r - mean(rs)) / spread for r in rs] for rs in rewards]
    else:
        scalars = [of_group(rs, settings) for rs in rewards]
    return [
        [[a] * n for a, n in zip(found, ns, strict=True)] for found, ns in zip(scalars, lengths, strict=True)
    ]


def kl_of(d: float, ratio: float, kind: str) -> float:
    held = min(20.0, d)
    k3 = math.exp(held) - held - 1
    return {"k1": -d, "k2": d * d / 2, "k3": k3, "k3_ratio": ratio * k3}[kind]


def surrogate_of(ratio: float, advantage: float, policy: float, settings: Settings, parts: Parts) -> float:
    if settings.surrogate == "policy_gradient":
        return (policy if settings.weight == "logprob" else ratio) * advantage
    if settings.surrogate == "cispo":
        parts.clipped += ratio > settings.bound
        return min(ratio, settings.bound) * advantage * policy
    within = max(1 - settings.low, min(1 + settings.high, ratio))
    surrogate = min(ratio * advantage, within * advantage)
    parts.clipped += surrogate != ratio * advantage
    if settings.dual is not None and advantage < 0:
        surrogate = max(surrogate, settings.dual * advantage)
    return surrogate


def rollout_losses(
    response: Response, advantages: list[float], settings: Settings, parts: Parts
) -> list[float]:
    """The loss of each trained token of a rollout before aggregation."""
    trained = [t for t in range(len(response.policy)) if response.trainable[t]]
    log_ratios = [response.policy[t] - response.old[t] for t in trained]
    if settings.ratio == "sequence_product":
        log_ratios = [math.fsum(log_ratios)] * len(trained)
    if settings.ratio == "sequence_geometric":
        log_ratios = [math.fsum(log_ratios) / len(trained)] * len(trained)
    parts.clamped += sum(abs(x) > 20 for x in log_ratios)
    ratios = [math.exp(max(-20.0, min(20.0, x))) for x in log_ratios]
    kls = [
        kl_of(response.reference[t] - response.policy[t], rho, settings.kl)
        for t, rho in zip(trained, ratios, strict=True)
    ]
    held = kls if settings.cap_token is None else [min(x, settings.cap_token) for x in kls]
    total = math.fsum(held)
    if settings.cap_rollout is not None and total > settings.cap_rollout:
        held = [x * settings.cap_rollout / total for x in held]
    parts.capped += sum(a != b for a, b in zip(kls, held, strict=True))
    losses = []
    for t, rho, advantage, kl in zip(trained, ratios, advantages, held, strict=True):
        surrogate = surrogate_of(rho, advantage, response.policy[t], settings, parts)
        correction = 1.0
        if settings.cap is not None:
            correction = min(settings.cap, math.exp(response.old[t] - response.sampler[t]))
        losses.append(
            -correction * surrogate + settings.beta * kl - settings.entropy_bonus * response.entropy[t]
        )
    return losses


def loss(groups: list[list[Response]], settings: Settings) -> tuple[float, Parts]:
    """The loss of a batch of groups."""
    parts = Parts(advantages=advantages_of(groups, settings))
    sums: list[float] = []
    counts: list[int] = []
    for group, of_one in zip(groups, parts.advantages, strict=True):
        for response, advantages in zip(group, of_one, strict=True):
            if any(response.trainable):
                losses = rollout_losses(response, advantages, settings, parts)
                counts.append(len(losses))
                sums.append(math.fsum(losses))
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
