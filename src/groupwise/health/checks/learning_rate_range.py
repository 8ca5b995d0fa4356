"""A learning rate far from what such models take."""

from __future__ import annotations

from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.records import Finding, Severity


def learning_rate_range(
    history: History,
    facts: Facts,
    *,
    full_low: float = 5e-7,
    full_high: float = 2e-5,
    lora_low: float = 1e-4,
    lora_high: float = 2e-4,
    far: float = 4.0,
    lora_far_low: float = 10.0,
) -> list[Finding]:
    """The peak of the learning rate is far outside what is usual for the model's size and the method.

    Judges by `training/learning_rate` and `training/weights_millions`. The ranges are those that guides give at 7B:
    5e-7 to 3e-6 for all weights, some up to 2e-5, and 1e-4 to 2e-4 for LoRA. Smaller models take more; the upper end
    grows here with the square root of 7B over the size, which gives 5e-5 at 1B, as practice has it.

    Args:
        history: the metrics.
        facts: of the run: adapter or not, and the peak where it is known.
        full_low: usual lower end for all weights.
        full_high: usual upper end for all weights, at 7B.
        lora_low: usual lower end for LoRA.
        lora_high: usual upper end for LoRA, at 7B.
        far: so many times above the upper or below the lower end is far.
        lora_far_low: the same below LoRA's lower end, where recipes at ten times the rate of full training begin.

    Edge case: without the size it is taken for 7B; whether it is LoRA must be known. A rate of 0 has no finding here.
    """
    rates = history.all("training/learning_rate")
    rate = facts.learning_rate if facts.learning_rate is not None else max(rates.values, default=0.0)
    if facts.lora is None or not rate or history.now("training/learning_rate") is None:
        return []
    size = history.first("training/weights_millions", 1)
    millions = size.values[0] if size.values else 7000.0
    low, high = (lora_low, lora_high) if facts.lora else (full_low, full_high)
    high *= max(7000.0 / millions, 1.0) ** 0.5
    least, most = low / (lora_far_low if facts.lora else far), high * far
    if least <= rate <= most:
        return []
    above = rate > most
    method = "LoRA" if facts.lora else "training all weights"
    return [
        Finding(
            check="learning_rate_range",
            kind="high" if above else "low",
            severity=Severity.WARNING if above else Severity.INFO,
            first_step=rates.steps[0],
            last_step=history.step,
            summary=f"the learning rate is {rate:g}; usual for {method} of {millions:,.3g} M weights is "
            f"{low:.2g} to {high:.2g}",
            evidence={"training/learning_rate": rate, "usual low": low, "usual high": high}
            | {"training/weights_millions": millions},
            causes=("a slip, or a rate meant for another method",),
            remedies=(f"set training.learning_rate to {high if above else low:.1g}",),
        )
    ]
