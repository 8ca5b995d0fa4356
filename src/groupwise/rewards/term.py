"""How one reward enters the sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from groupwise.config.rewards import GateConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """How one reward enters the sum."""

    label: str
    """Its name, unique within a run."""
    weight: float = 1.0
    """Its factor; 0 when it is only watched."""
    schedule: tuple[tuple[int, float], ...] = ()
    """Points (finished steps, factor) with rising steps; empty for the factor 1."""
    gate: GateConfig | None = None
    """Another reward that decides whether this one counts."""
    normalise: Literal["none", "group", "batch"] = "none"
    """Over what its values are normalised when training."""
    smoothing: float = 0.0
    """Weight of earlier steps in the statistics."""

    def weight_at(self, step: int) -> float:
        """weight x the height of the schedule's line at `step` finished steps; constant outside its points."""
        if not self.schedule:
            return self.weight
        before = [point for point in self.schedule if point[0] <= step]
        after = [point for point in self.schedule if point[0] > step]
        if not before or not after:
            return self.weight * (before[-1] if before else after[0])[1]
        (start, low), (end, high) = before[-1], after[0]
        return self.weight * (low + (high - low) * (step - start) / (end - start))

    def formula(self) -> str:
        """What it adds to the total, such as `0.3 z_group(style if right >= 1 else 0)`."""
        text = self.label
        if self.gate is not None:
            text = f"{text} if {self.gate.reward} >= {self.gate.at_least:g} else {self.gate.otherwise:g}"
        if self.normalise != "none":
            running = f", smoothing {self.smoothing:g}" if self.smoothing else ""
            text = f"z_{self.normalise}({text}{running})"
        elif self.gate is not None:
            text = f"({text})"
        if not self.schedule:
            return f"{self.weight:g} {text}"
        points = ", ".join(f"{factor:g} at step {step}" for step, factor in self.schedule)
        return f"{self.weight:g} [{points}] {text}"
