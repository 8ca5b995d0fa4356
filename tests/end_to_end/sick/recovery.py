"""Runs that fall ill on their way, with rollback and without: what held-out accuracy becomes of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.records.health_file import Act, read_actions
from groupwise.training.loop import train
from tests.end_to_end.sick.patients import Patient, Tree, laid, opened, right

STEPS = 60
"""Of each run; the illness is to come before half of them."""

_RECORDED: Tree = {
    "checkpoint": {"save": True, "every_steps": 5, "every_minutes": None},
    "training": {"steps": STEPS},
    "evaluate": {"every_steps": 5, "samples": 3},
    "rollout": {"prompts_per_step": 4},
}

ILLNESSES: dict[str, tuple[Patient, dict[str, Any]]] = {
    # A warm-up to a rate at which nothing holds: well for ten steps, and lost soon after.
    "learning rate": (
        Patient(name="learning rate", tree={"training": {"learning_rate": 1e-1, "warmup_steps": STEPS}}),
        {"do": "rollback", "learning_rate": 0.02, "times": 3},
    ),
    # The leash is as good as none, and the rate is one that needs it.
    "KL run-away": (
        Patient(
            name="KL run-away",
            tree={
                "objective": {"kl": {"beta": 1e-3}},
                "training": {"learning_rate": 1.5e-2, "warmup_steps": STEPS // 2},
            },
        ),
        {"do": "rollback", "beta": 100, "learning_rate": 0.05, "times": 3},
    ),
}
"""What is wrong, and the action on kl_runaway that is to heal it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """A run with rollback or without."""

    before: float
    """Held-out accuracy when the run was last known to be well: at the checkpoint gone back to first."""
    after: float
    """Held-out accuracy after the last step."""
    ill_at: int | None
    """The step after which the run first went back; None for never."""
    rollbacks: int
    """How often it went back."""


def live(name: str, place: Path, *, seed: int, rollback: bool) -> Recovery:
    """Train a run of `ILLNESSES` to the end.

    Args:
        name: which.
        place: folder for it.
        seed: of the run.
        rollback: with the action, or without.
    """
    patient, action = ILLNESSES[name]
    tree = laid(patient.tree, _RECORDED)
    if rollback:
        tree = laid(tree, {"health": {"actions": {"kl_runaway": action}}})
    run = opened(Patient(name=name, tree=tree, rewards=(right,)), place, seed=seed)
    result = train(run)
    accuracy = {int(line["step"]): line["eval/pass@1"] for line in result.metrics if "eval/pass@1" in line}
    file = run.folder.health_file
    taken = [each for each in read_actions(file) if each.act is Act.ROLLBACK] if file.exists() else []
    first = taken[0] if taken else None
    before = accuracy[0 if first is None or first.to_step is None else first.to_step]
    return Recovery(
        before=before,
        after=accuracy[run.steps],
        ill_at=None if first is None else first.step,
        rollbacks=len(taken),
    )
