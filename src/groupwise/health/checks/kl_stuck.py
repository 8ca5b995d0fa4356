"""The policy does not leave its reference, and learns nothing."""

from __future__ import annotations

from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.health.trend import trend
from groupwise.records import Finding, Severity


def kl_stuck(
    history: History,
    facts: Facts,
    *,
    token_limit: float = 5e-4,
    window: int = 50,
    large_beta: float = 0.1,
) -> list[Finding]:
    """KL near 0 over many steps while the reward does not rise.

    Judges by `kl/token_mean`, `kl/beta` and `reward/mean`. A leash that is too short shows as a KL that stays near 0;
    so does a learning rate that is too low, and then the coefficient is within what is usual (0.001 to 0.1: DeepSeek-R1
    uses 0.001, DeepSeekMath 0.04).

    Args:
        history: the metrics.
        facts: of the run; not used.
        token_limit: nats per token that count as none; runs that learn are at a thousandth or more within 50 steps.
        window: steps.
        large_beta: a coefficient above it is the likelier cause and makes the finding a warning; below it is an info.

    Edge case: a KL coefficient of 0 is no leash, so there is no finding; nor before `window` steps have passed.
    """
    kl, reward = history.last("kl/token_mean", window), history.last("reward/mean", window)
    beta = history.now("kl/beta")
    if not beta or len(kl) < window or len(reward) < window or abs(kl.mean) >= token_limit:
        return []
    course = trend(reward.values)
    if course.rises:
        return []
    leash = "the KL coefficient is so large that it outweighs the reward"
    slow = "the learning rate is too low"
    short = beta > large_beta
    return [
        Finding(
            check="kl_stuck",
            kind="flat",
            severity=Severity.WARNING if short else Severity.INFO,
            first_step=kl.steps[0],
            last_step=history.step,
            summary=f"KL is {kl.mean:.2g} nats per token over {window} steps, and the reward does not rise",
            evidence={
                "kl/token_mean": kl.mean,
                "kl/beta": beta,
                "reward change": course.change,
                "token_limit": token_limit,
            },
            causes=(leash, slow) if short else (slow, leash),
            remedies=(
                "lower objective.kl.beta tenfold",
                "raise training.learning_rate threefold",
                "see no_learning: without spread in the groups nothing moves either",
            ),
        )
    ]
