"""A run that is killed again and again, and gone on with each time, is the run that nobody touched.

The processes are forked from one that has imported everything, so that a life of a run takes a second and not ten.
`GROUPWISE_KILLS` sets how often the first kind of run is killed in the long test, and each other kind a fifth as
often; `make proof` asks for 200. Moments are shares of how long a run takes on the machine.
"""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from groupwise.checkpoint.save import saved_checkpoints
from groupwise.records.health_file import read_findings
from tests.end_to_end.interrupted import HELD_OUT, KINDS, ROWS, differing, left_behind, restless, tree
from tests.nursery import nursery

_KILLS = int(os.environ.get("GROUPWISE_KILLS", "30"))
_SLOW = 1800 + 60 * _KILLS  # seconds; only what hangs takes so long
_SHORTEST = 5  # lives that end before anything happened are of no use beyond so many

VARIANTS: dict[str, dict[str, Any]] = {
    # Batches used for two passes of two updates, a checkpoint after each, so that most are of a half-used batch; beta
    # and temperature move.
    "half-used batches": {
        "objective": {
            "kl": {"beta": 0.05, "controller": {"name": "proportional", "target": 0.001, "gain": 0.5}}
        },
        "rollout": {"temperature_schedule": {"final": 0.8, "steps": 4}},
    },
    **KINDS,
    # A KL that is taken for a run-away at step 3 and after: the run goes back, and goes on with other settings.
    "rollback": {
        "health": {
            "thresholds": {"kl_runaway": {"token_limit": 1e-7}},
            "actions": {"kl_runaway": {"do": "rollback", "beta": 1.5, "learning_rate": 0.5, "times": 2}},
        },
    },
    # Rewards in units of a running spread, and a check whose findings follow from all steps so far.
    "smoothed and watched": {
        "rewards": [
            {
                "name": "length_target",
                "settings": {"target": 3, "width": 2},
                "normalise": "batch",
                "smoothing": 0.7,
            }
        ],
        "health": {"add": ["tests.end_to_end.interrupted:uneasy"]},
        "rollout": {"prompts_per_step": 1},
        "training": {"steps": 14, "updates_per_batch": 1, "mini_batches": 1},
    },
    # Checkpoints between steps only, every second one: killed runs repeat steps whose records are on disk.
    "seldom": {"checkpoint": {"every_steps": 2, "every_minutes": None}},
}


def live(folder: str, variant: str, deadly_event: int | None = None) -> None:
    """One life of a run: begin it, or go on with it.

    Args:
        folder: of the run.
        variant: of VARIANTS.
        deadly_event: the process kills itself at its so-manieth act on a file: a sync, a rename, a removal.
    """
    import groupwise

    if deadly_event is not None:
        _die_at(deadly_event)
    given: dict[str, Any] = {"rewards": [restless], "train": ROWS, "held_out": HELD_OUT}
    if any(Path(folder).glob("checkpoints/step-*")):
        groupwise.train(resume=folder, **given)
    else:  # killed before the checkpoint of the start, when there is nothing to go on with
        groupwise.train(tree(Path(folder), **VARIANTS[variant]), "run.overwrite=true", **given)


def _die_at(event: int) -> None:
    left = event

    def deadly(act: Callable[..., Any]) -> Callable[..., Any]:
        def acted(*given: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return act(*given, **options)

        return acted

    for name in ("fsync", "replace", "rename", "unlink", "rmdir"):
        setattr(os, name, deadly(getattr(os, name)))


def _nothing() -> None:
    pass


def begin(folder: Path, variant: str, deadly_event: int | None = None) -> Any:
    process = nursery().Process(target=live, args=(str(folder), variant, deadly_event))
    process.start()
    return process


def whole_run(folder: Path, variant: str) -> tuple[dict[str, Any], float]:
    """What a run that is left alone leaves behind, and how long it takes."""
    warm = nursery().Process(target=_nothing)  # the first fork waits for the imports
    warm.start()
    warm.join()
    started = time.monotonic()
    process = begin(folder, variant)
    process.join()
    assert process.exitcode == 0
    return left_behind(folder), time.monotonic() - started


def kill_and_compare(place: Path, variant: str, kills: int, seed: int) -> int:
    """Kill runs at random moments until so many were killed, and compare each at its end. How many runs it took."""
    expected, seconds = whole_run(place / "whole", variant)
    moments = random.Random(seed)
    runs = killed = 0
    while killed < kills:
        runs += 1
        folder = place / f"run{runs}"
        while True:
            process = begin(folder, variant)
            process.join(moments.uniform(0.02, 0.7) * seconds if killed < kills else None)
            if process.exitcode is not None:
                assert process.exitcode == 0
                break
            process.kill()
            process.join()
            killed += 1
        assert differing(left_behind(folder), expected) == [], f"after {killed} kills, run {runs}"
    return runs


def test_a_run_killed_once(tmp_path: Path) -> None:
    kill_and_compare(tmp_path, "seldom", kills=1, seed=1)


@pytest.mark.long
@pytest.mark.timeout(_SLOW)
@pytest.mark.parametrize("variant", VARIANTS)
def test_runs_killed_at_random_moments(tmp_path: Path, variant: str) -> None:
    kills = _KILLS if variant == "half-used batches" else max(1, _KILLS // 5)
    runs = kill_and_compare(tmp_path, variant, kills, seed=2)
    print(
        f"{variant}: {kills} kills in {runs} run{'s' * (runs > 1)}, each at its end as one that nobody touched"
    )


@pytest.mark.long
def test_the_watched_run_is_worth_killing(tmp_path: Path) -> None:
    """Its findings begin, worsen and end, and its statistics reach back."""
    variant = "smoothed and watched"
    live(str(tmp_path / "run"), variant)
    events = read_findings(tmp_path / "run" / "health.jsonl")
    assert {each.event.value for each in events if each.finding.kind in ("early", "odd")} == {
        "begins",
        "worsens",
        "ends",
    }
    _, last = saved_checkpoints(tmp_path / "run" / "checkpoints")[-1]
    rewards = torch.load(last / "state.pt", weights_only=True)["rewards"]
    assert "'updates': 14.0" in str(rewards)


@pytest.mark.long
@pytest.mark.timeout(_SLOW)
def test_runs_that_die_in_the_middle_of_an_act_on_a_file(tmp_path: Path) -> None:
    variant = "half-used batches"
    expected, _ = whole_run(tmp_path / "whole", variant)
    events = random.Random(3)
    for number in range(3):
        folder = tmp_path / f"run{number}"
        for _ in range(_SHORTEST):
            process = begin(folder, variant, events.randint(1, 120))
            process.join()
            if process.exitcode == 0:
                break
            assert process.exitcode == -signal.SIGKILL
        process = begin(folder, variant)
        process.join()
        assert process.exitcode == 0
        assert differing(left_behind(folder), expected) == []
