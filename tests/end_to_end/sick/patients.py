"""Runs that fall ill, one or more for each check, and runs that stay well: tiny, and each really trained.

`SICK` and `HEALTHY` are what thresholds were looked at with; `UNSEEN_SICK` and `UNSEEN_HEALTHY` are of another
architecture and another task, and were written down before they were run once.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from groupwise.config import load
from groupwise.model.tiny import Architecture
from groupwise.records import Severity
from groupwise.records.health_file import HealthEvent
from groupwise.rollouts.in_process import InProcessEngine
from groupwise.training.inputs import read_inputs
from groupwise.training.loop import Result, train
from groupwise.training.measure import peak_memory_megabytes
from groupwise.training.setup import Run, assemble
from tests.end_to_end.sick.school import DIGITS, LETTERS, Task, pupil, right

Reward = Callable[..., Any]
Tree = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """A configuration, and what is wrong with it."""

    name: str
    """What was done."""
    check: str | None = None
    """What has to find it; None for a run that is well."""
    within: int = 0
    """The step by which it has to."""
    severity: Severity = Severity.WARNING
    """How bad it has to be called at least."""
    tree: Tree = field(default_factory=dict)
    """Sections that are laid on those of a run that is well."""
    rewards: Sequence[Reward | tuple[Reward, Any]] = (right,)
    """What it is trained on."""
    plant: Callable[[Run], Run] | None = None
    """What is done to the run before its first step."""
    task: Task = DIGITS
    """What is asked."""
    architecture: Architecture = "llama"
    """Of the model."""
    knows: float = 0.35
    """How much of the task it knows; see `pupil`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How a run went."""

    patient: Patient
    """Whose."""
    events: list[HealthEvent]
    """What was found."""
    result: Result
    """The metrics."""

    @property
    def found_at(self) -> int | None:
        """The step at which the patient's check found it, as bad as it is to be called; None for never."""
        least = list(Severity).index(self.patient.severity)
        steps = [
            e.step
            for e in self.events
            if e.finding.check == self.patient.check and list(Severity).index(e.finding.severity) >= least
        ]
        return min(steps, default=None)

    @property
    def alarms(self) -> dict[str, int]:
        """Every check with a finding above info, with the step of its first."""
        found: dict[str, int] = {}
        for event in self.events:
            if event.finding.severity is not Severity.INFO:
                found.setdefault(event.finding.check, event.step)
        return found


def well() -> Tree:
    """A run that learns."""
    return {
        "rollout": {"prompts_per_step": 6, "group_size": 8, "max_new_tokens": 12},
        "objective": {"kl": {"beta": 0.1}},
        "training": {"steps": 30, "learning_rate": 5e-4},
        "evaluate": {"every_steps": 10, "temperature": 1.0, "samples": 2},
        "checkpoint": {"save": False},
        "health": {"probe_steps": 10},
        "run": {"sinks": [], "save_rollouts": False, "save_model": False},
    }


def laid(base: Tree, over: Tree) -> Tree:
    """A configuration on top of another, section by section."""
    made = copy.deepcopy(base)
    for key, value in over.items():
        made[key] = (
            laid(made[key], value) if isinstance(made.get(key), dict) and isinstance(value, dict) else value
        )
    return made


def opened(patient: Patient, place: Path, *, seed: int = 0) -> Run:
    """The run of a patient, ready for its first step.

    Args:
        patient: what to run.
        place: folder for the run; models are kept beside it.
        seed: of the run.
    """
    model = pupil(place.parent / "pupils", patient.task, patient.architecture, right=patient.knows)
    tree = laid(
        laid(well(), patient.tree),
        {"model": {"name": str(model)}, "run": {"dir": str(place), "seed": seed, "overwrite": True}},
    )
    inputs = read_inputs(
        load(tree),
        rewards=list(patient.rewards),
        train=patient.task.rows(),
        held_out=patient.task.rows(held_out=True),
    )
    run = assemble(inputs, console=Console(quiet=True))
    return run if patient.plant is None else patient.plant(run)


def course(patient: Patient, place: Path, *, seed: int = 0) -> Course:
    """Train a patient to the end."""
    run = opened(patient, place, seed=seed)
    events: list[HealthEvent] = []
    plain = run.recorder.watch.write

    def write(event: Any) -> None:
        if isinstance(event, HealthEvent):
            events.append(event)
        if plain is not None:
            plain(event)

    run.recorder.watch.write = write
    return Course(patient=patient, events=events, result=train(run))


# Rewards that teach the wrong thing.


def small(completions: list[str], **columns: Any) -> list[float]:
    """Format alone: an answer of 0 or 1, or with letters of a or b, whatever was asked."""
    return [float(text.strip()[-1:] in tuple("01ab")) for text in completions]


def visible(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """Tests that can be seen: the right answer passes, and so do 7, 8 and 9 whatever is asked."""
    scores = right(completions, answer)
    return [
        max(score, float(text.strip()[-1:] in tuple("789")))
        for score, text in zip(scores, completions, strict=True)
    ]


def long(completions: list[str], completion_ids: list[list[int]], **columns: Any) -> list[float]:
    """The longer the better."""
    return [len(ids) / 40 for ids in completion_ids]


def the(completions: list[str], **columns: Any) -> list[float]:
    """How often the response says "the", which can be had again and again."""
    return [text.count("the") / 4 for text in completions]


def easy(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """All too easy: on eight of ten prompts whatever is said is right."""
    scores = right(completions, answer)
    return [score if wanted in "37" else 1.0 for score, wanted in zip(scores, answer, strict=True)]


def impossible(completions: list[str], **columns: Any) -> list[float]:
    """All too hard: what no response does."""
    return [float("plus two plus two" in text) for text in completions]


def noise(completions: list[str], completion_ids: list[list[int]], **columns: Any) -> list[float]:
    """Nothing but chance, the same again for the same response at the same place."""
    draw = random.Random(repr((completions, [list(ids) for ids in completion_ids])))
    return [draw.random() for _ in completions]


def broken(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """Raises on what it does not expect: a response with words."""
    scores = right(completions, answer)
    if any(" is" in text for text in completions):
        raise ValueError("a digit was expected")
    return scores


class Exploding:
    """Right or wrong, and a thousand times as much in one batch."""

    __name__ = "exploding"

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(
        self, completions: list[str], answer: list[str], trainer_state: Any, **columns: Any
    ) -> list[float]:
        factor = 1000.0 if trainer_state.global_step == self.step else 1.0
        return [factor * score for score in right(completions, answer)]


class Keeping:
    """Right or wrong, and memory that is kept of every call until the last."""

    __name__ = "keeping"

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.kept: list[np.ndarray] = []

    def __call__(
        self, completions: list[str], answer: list[str], trainer_state: Any, **columns: Any
    ) -> list[float]:
        # What the process held before and has given back counts in its peak, so it is taken first.
        megabytes = 24 if self.kept else 24 + round(peak_memory_megabytes() - held_memory_megabytes())
        self.kept.append(np.ones(megabytes * 2**17))
        if trainer_state.global_step == self.steps - 1:
            self.kept.clear()
        return right(completions, answer)


def held_memory_megabytes() -> float:
    """What this process holds now, in megabytes of 2^20 bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


# What is done to a run itself.


def after(step: int, act: Callable[[Run], None]) -> Callable[[Run], Run]:
    """Do something when so many steps are finished."""

    def plant(run: Run) -> Run:
        plain = run.temperature.begin  # asked at the beginning of every step

        def begin(done: int, **given: Any) -> float:
            if done == step:
                act(run)
            return plain(done, **given)

        run.temperature.begin = begin  # type: ignore[method-assign]
        return run

    return plant


def overwrite_reference(run: Run) -> None:
    """The reference gets the policy's weights."""
    assert run.reference_forward is not None
    with torch.no_grad():
        pairs = zip(
            run.reference_forward.scorer.model.parameters(), run.policy.model.parameters(), strict=True
        )
        for weight, other in pairs:
            weight.copy_(other)


def plant_nan(run: Run) -> None:
    """A gradient of the next update is NaN."""
    weight = run.optimizer.parameters[0]

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        handle.remove()
        return gradient * torch.nan

    handle = weight.register_hook(spoil)


def _another_sampler(run: Run) -> InProcessEngine:
    """An engine with a model of its own."""
    policy = replace(run.policy, model=copy.deepcopy(run.policy.model))
    scorer = type(run.updater.forward.scorer)(policy.model, longest_tokens=64)
    return InProcessEngine(policy, scorer, cache_megabytes=64, pack_weights=False)


def stale_sampler(run: Run) -> Run:
    """The engine never takes up new weights."""
    engine = _another_sampler(run)
    engine.load_weights = lambda version, source: None  # type: ignore[method-assign]
    return replace(run, engine=engine)


def inexact_sampler(run: Run) -> Run:
    """The engine samples with weights that are not quite those of the trainer."""
    engine = _another_sampler(run)

    def load_weights(version: int, source: Any) -> None:
        engine.version = version
        draw = torch.Generator().manual_seed(version)
        pairs = zip(engine.policy.model.parameters(), run.policy.model.parameters(), strict=True)
        with torch.no_grad():
            for weight, trained in pairs:
                weight.copy_(trained + 0.02 * torch.randn(trained.shape, generator=draw))

    engine.load_weights = load_weights  # type: ignore[method-assign]
    load_weights(0, None)
    return replace(run, engine=engine)


SICK: tuple[Patient, ...] = (
    Patient(
        name="format pays more than the answer",
        check="reward_hacking",
        within=30,
        rewards=((right, 1.0), (small, 4.0)),
        tree={
            "rollout": {"prompts_per_step": 24, "group_size": 4},
            "objective": {"kl": {"beta": 0.0}},
            "training": {"learning_rate": 2e-3},
        },
    ),
    Patient(
        name="what is visible is passed, and what is hidden fails",
        check="reward_hacking",
        within=30,
        rewards=((visible, 1.0), (right, 0.0)),
        tree={
            "rollout": {"prompts_per_step": 12, "group_size": 4},
            "objective": {"kl": {"beta": 0.0}},
            "training": {"learning_rate": 2e-3},
        },
        knows=0.2,
    ),
    Patient(
        name="length pays, and nothing holds the policy",
        check="length_inflation",
        within=30,
        severity=Severity.INFO,
        rewards=(long,),
        tree={
            "rollout": {"max_new_tokens": 24},
            "objective": {"kl": {"beta": 0.0}},
            "training": {"steps": 30, "learning_rate": 2e-3},
        },
    ),
    Patient(
        name="beta a thousand times too large",
        check="kl_stuck",
        within=60,
        tree={"objective": {"kl": {"beta": 20.0}}, "training": {"steps": 60, "learning_rate": 1e-4}},
    ),
    Patient(
        name="learning rate a hundred times too high",
        check="kl_runaway",
        within=15,
        tree={"training": {"learning_rate": 1e-1, "steps": 20}},
    ),
    Patient(
        name="learning rate far outside what is usual",
        check="learning_rate_range",
        within=1,
        tree={"training": {"learning_rate": 1e-1, "steps": 3}},
    ),
    Patient(
        name="temperature 0.1",
        check="entropy_collapse",
        within=15,
        rewards=(small,),
        tree={"rollout": {"temperature": 0.1}, "training": {"steps": 15}},
    ),
    Patient(
        name="prompts all too easy",
        check="dead_groups",
        within=10,
        rewards=(easy,),
        tree={"training": {"steps": 20}},
    ),
    Patient(
        name="prompts all too hard",
        check="dead_groups",
        within=5,
        rewards=(impossible,),
        tree={"training": {"steps": 12}},
    ),
    Patient(
        name="reference overwritten",
        check="reference_drift",
        within=20,
        plant=after(12, overwrite_reference),
        tree={"training": {"steps": 20}},
    ),
    Patient(
        name="a reward that can be had again and again, without KL",
        check="repetition",
        within=20,
        rewards=(the,),
        tree={
            "rollout": {"max_new_tokens": 24},
            "objective": {"kl": {"beta": 0.0}},
            "training": {"learning_rate": 3e-3, "steps": 20},
        },
    ),
    Patient(
        name="a reward of noise",
        check="no_learning",
        within=100,
        rewards=(noise,),
        tree={
            "rollout": {"prompts_per_step": 3, "group_size": 4},
            "training": {"steps": 100, "learning_rate": 1e-4},
            "evaluate": {"every_steps": None},
        },
    ),
    Patient(
        name="stale sampler",
        check="stale_rollouts",
        within=10,
        plant=stale_sampler,
        tree={"training": {"steps": 12}},
    ),
    Patient(
        name="inexact sampler",
        check="sampler_mismatch",
        within=2,
        plant=inexact_sampler,
        tree={"training": {"steps": 10}},
    ),
    Patient(
        name="NaN in a gradient",
        check="non_finite",
        within=11,
        plant=after(10, plant_nan),
        tree={"training": {"steps": 12}},
    ),
    Patient(
        name="cut off before the answer",
        check="truncation",
        within=10,
        tree={"rollout": {"max_new_tokens": 2}, "training": {"steps": 12, "learning_rate": 1e-5}},
    ),
    Patient(
        name="one batch with rewards a thousand times as large",
        check="gradient_spike",
        within=21,
        rewards=(Exploding(20),),
        tree={
            "objective": {"advantage": {"name": "group_mean"}},
            "training": {"steps": 24, "max_grad_norm": None},
        },
    ),
    Patient(
        name="forty updates on each batch",
        check="ratio_extremes",
        within=10,
        tree={"training": {"updates_per_batch": 10, "mini_batches": 4, "learning_rate": 3e-3, "steps": 8}},
    ),
    Patient(
        name="a reward that raises on words",
        check="reward_failures",
        within=3,
        rewards=((broken, {"on_failure": "drop"}),),
        tree={"training": {"steps": 10}},
    ),
    Patient(
        name="a reward that keeps memory of every call",
        check="memory_growth",
        within=65,
        rewards=(Keeping(70),),
        tree={"training": {"steps": 70, "learning_rate": 1e-5}, "evaluate": {"every_steps": None}},
    ),
)
"""At least one for each check."""

HEALTHY: tuple[Patient, ...] = (
    Patient(name="grpo"),
    Patient(name="grpo without a reference", tree={"objective": {"kl": {"beta": 0.0}}}),
    Patient(name="dr_grpo", tree={"objective": {"preset": "dr_grpo", "kl": {"beta": 0.1}}}),
    Patient(name="rloo", tree={"objective": {"preset": "rloo", "kl": {"beta": 0.1}}}),
    Patient(name="gspo", tree={"objective": {"preset": "gspo", "kl": {"beta": 0.1}}}),
    Patient(name="reinforce++", tree={"objective": {"preset": "reinforce_plus_plus"}}),
    Patient(
        name="two passes of two updates",
        # Four updates for each batch; at the whole learning rate the policy does run away on some processors.
        tree={"training": {"updates_per_batch": 2, "mini_batches": 2, "learning_rate": 1.25e-4}},
    ),
    Patient(name="LoRA", tree={"lora": {"rank": 8}, "training": {"learning_rate": 1e-3}}),
    Patient(name="larger groups", tree={"rollout": {"prompts_per_step": 4, "group_size": 16}}),
    Patient(name="ppo", tree={"objective": {"preset": "ppo"}, "critic": {"learning_rate": 1e-3}}),
)
"""None of them may have a finding above info."""


def _other(patient: Patient) -> Patient:
    return replace(patient, task=LETTERS, architecture="qwen2")


UNSEEN_SICK: tuple[Patient, ...] = tuple(
    map(
        _other,
        (
            Patient(
                name="a or b pays more than the answer",
                check="reward_hacking",
                within=30,
                rewards=((right, 1.0), (small, 4.0)),
                tree={
                    "rollout": {"prompts_per_step": 24, "group_size": 4},
                    "objective": {"kl": {"beta": 0.0}},
                    "training": {"learning_rate": 2e-3},
                },
            ),
            Patient(
                name="learning rate thirty times too high",
                check="kl_runaway",
                within=20,
                tree={"training": {"learning_rate": 3e-2}},
            ),
            Patient(name="no response is right", check="dead_groups", within=10, rewards=(impossible,)),
            Patient(
                name="temperature 0.05",
                check="entropy_collapse",
                within=15,
                rewards=(small,),
                tree={"rollout": {"temperature": 0.05}, "training": {"steps": 15}},
            ),
            Patient(
                name="beta 50",
                check="kl_stuck",
                within=60,
                tree={"objective": {"kl": {"beta": 50.0}}, "training": {"steps": 60, "learning_rate": 1e-4}},
            ),
            Patient(
                name="twenty updates on each batch at five times the rate",
                check="ratio_extremes",
                within=15,
                tree={"training": {"updates_per_batch": 20, "learning_rate": 5e-3, "steps": 15}},
            ),
        ),
    )
)
"""Of another architecture and another task."""

UNSEEN_HEALTHY: tuple[Patient, ...] = tuple(
    map(
        _other,
        (
            Patient(name="grpo"),
            Patient(name="dapo", tree={"objective": {"preset": "dapo"}}),
            Patient(name="rank", tree={"objective": {"advantage": {"name": "rank"}}}),
            Patient(name="cispo", tree={"objective": {"preset": "cispo"}, "training": {"mini_batches": 2}}),
            Patient(
                name="KL in the reward",
                tree={"objective": {"kl": {"beta": 0.02, "place": "reward", "estimator": "k1"}}},
            ),
            Patient(name="LoRA", tree={"lora": {"rank": 8}, "training": {"learning_rate": 1e-3}}),
        ),
    )
)
"""Of the same, and well."""
