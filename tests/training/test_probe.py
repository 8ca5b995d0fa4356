"""The reference is measured on a fixed probe, with and without an adapter, and a change of it is found."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from groupwise.errors import CheckpointError
from groupwise.records.metrics_file import read_metrics
from groupwise.training.loop import train
from groupwise.training.setup import Run

DRIFT = "reference/drift_abs_max"


def drifts(run: Run) -> dict[int, float]:
    lines = read_metrics(run.folder.metrics_file)
    return {int(line["step"]): line[DRIFT] for line in lines if DRIFT in line}


@pytest.mark.parametrize("lora", [None, {"rank": 4, "dropout": 0.3}], ids=["whole", "lora"])
def test_a_frozen_reference_does_not_move(tiny_run: Callable[..., Run], lora: Any) -> None:
    sections = {} if lora is None else {"lora": lora}
    run = tiny_run(
        objective={"kl": {"beta": 0.1}},
        training={"steps": 5, "learning_rate": 1e-2},
        health={"probe_steps": 2},
        **sections,
    )
    train(run)
    # At the start and every two steps, and not by a bit, though the policy is far from where it began.
    assert drifts(run) == {1: 0, 2: 0, 4: 0}


def test_a_reference_that_is_overwritten_is_found(tiny_run: Callable[..., Run]) -> None:
    run = tiny_run(objective={"kl": {"beta": 0.1}}, training={"steps": 4}, health={"probe_steps": 2})
    assert run.reference_forward is not None
    plain = run.temperature.begin

    def begin(step: int, **given: Any) -> float:
        if step == 2 and run.reference_forward is not None:
            with torch.no_grad():
                for weight in run.reference_forward.scorer.model.parameters():
                    weight.mul_(1.1)
        return plain(step, **given)

    run.temperature.begin = begin  # type: ignore[method-assign]
    train(run)
    found = drifts(run)
    assert found[2] == 0
    assert found[4] > 1e-3
    assert any(finding.check == "reference_drift" for finding in run.recorder.watch.findings)


def test_without_a_reference_and_when_never_nothing_is_measured(tiny_run: Callable[..., Run]) -> None:
    without = tiny_run(training={"steps": 1})
    train(without)
    never = tiny_run(objective={"kl": {"beta": 0.1}}, training={"steps": 1}, health={"probe_steps": None})
    train(never)
    assert drifts(without) == drifts(never) == {}


def test_its_first_measurement_is_in_the_checkpoint(tiny_run: Callable[..., Run]) -> None:
    one, other = (tiny_run(objective={"kl": {"beta": 0.1}}, training={"steps": 1}) for _ in range(2))
    train(one)
    state = one.probe.state()
    other.probe.restore({"first": state["first"] + 0.5})
    assert other.probe.measure(1)[DRIFT].value == pytest.approx(0.5)
    with pytest.raises(CheckpointError, match=r"has 1 tokens, and this run's"):
        other.probe.restore({"first": state["first"][:1]})
