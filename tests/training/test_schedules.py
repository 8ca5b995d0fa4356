"""What changes from step to step, and that it goes on from its state as if nothing had happened."""

import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from groupwise.config.rollout import RolloutConfig
from groupwise.errors import CheckpointError, TrainingError
from groupwise.health.metric import Mean
from groupwise.objective.kl_controllers.fixed import fixed
from groupwise.objective.kl_controllers.interval import interval
from groupwise.training.loop import train
from groupwise.training.schedules import KLController, Temperature
from groupwise.training.setup import Run


def measured(token: float, rollout: float) -> dict[str, Mean]:
    return {"kl/token_mean": Mean(token, 1), "kl/rollout_mean": Mean(rollout, 1)}


def test_beta_follows_the_kl_of_the_step_before() -> None:
    controller = KLController(partial(interval, low=1.0, high=2.0, factor=2.0), 0.1)
    assert controller.begin(0) == 0.1  # nothing is measured yet
    controller.end(measured(0.0, 5.0))
    assert controller.begin(1) == 0.2
    controller.end(measured(0.0, 0.5))
    assert controller.begin(2) == 0.1
    controller.end({})  # no rollout was computed: beta stays
    assert controller.begin(3) == 0.1
    controller.end({"kl/token_mean": Mean(), "kl/rollout_mean": Mean()})
    assert controller.begin(4) == 0.1


def test_a_controller_goes_on_from_its_state() -> None:
    kls = [5.0, 5.0, 0.1, 3.0, math.nan, 1.5, 9.0]

    def betas(controller: KLController, steps: range) -> list[float]:
        found = []
        for step in steps:
            found.append(controller.begin(step))
            controller.end(measured(0.0, kls[step]))
        return found

    control = partial(interval, low=1.0, high=2.0, factor=1.3)
    whole = betas(KLController(control, 0.1), range(7))
    first = KLController(control, 0.1)
    betas(first, range(5))
    resumed = KLController(control, 0.1)
    resumed.restore(json.loads(json.dumps(first.state())))
    assert betas(resumed, range(5, 7)) == whole[5:]
    assert len({round(beta, 9) for beta in whole}) == 3


@pytest.mark.parametrize("beta", [math.nan, -1.0, "0.1", None])
def test_a_controller_of_yours_that_gives_no_beta_is_named(beta: Any) -> None:
    with pytest.raises(TrainingError, match=r"the KL controller gave .* for step 3"):
        KLController(lambda *given: beta, 0.1).begin(2)


@pytest.mark.parametrize(
    "state", [{}, {"beta": "x", "kl_token": 1.0, "kl_rollout": 1.0}, None, {"beta": 1.0}]
)
def test_another_state_is_refused(state: Any) -> None:
    controller = KLController(fixed, 0.1)
    with pytest.raises(CheckpointError, match="the state of the KL controller has"):
        controller.restore(state)
    assert controller.beta == 0.1, "nothing of it is taken over"
    with pytest.raises(CheckpointError, match="the state of the temperature has"):
        Temperature(RolloutConfig()).restore(state)


def test_the_temperature_falls_along_a_line_and_stays() -> None:
    config = RolloutConfig.model_validate(
        {"temperature": 1.0, "temperature_schedule": {"final": 0.6, "steps": 4}}
    )
    temperature = Temperature(config)
    assert temperature.value == 1.0
    assert [temperature.begin(s) for s in range(6)] == pytest.approx(
        [1.0, 0.9, 0.8, 0.7, 0.6, 0.6], rel=1e-12
    )
    assert [Temperature(RolloutConfig(temperature=0.7)).begin(s) for s in (0, 99)] == [0.7, 0.7]
    other = Temperature(config)
    other.restore(json.loads(json.dumps(temperature.state())))
    assert other.value == temperature.value == 0.6


def test_a_run_samples_and_trains_at_the_temperature_of_the_step(tiny_run: Callable[..., Run]) -> None:
    run = tiny_run(rollout={"temperature": 1.0, "temperature_schedule": {"final": 0.5, "steps": 2}})
    result = train(run)
    assert result.series("sampler/temperature") == [1.0, 0.75, 0.5]
    # Were the trainer's temperature another than the sampler's, the first ratio would be far from 1.
    assert max(result.series("sampler/gap_abs_max")) < 1e-4
    assert max(abs(r - 1) for r in result.series("ratio/max")) < 1e-4


def test_a_run_trains_with_the_beta_of_the_step(tiny_run: Callable[..., Run]) -> None:
    controller = {"name": "warmup_decay", "warmup_steps": 2, "target": 0.0, "decay_steps": 1}
    run = tiny_run(objective={"kl": {"beta": 0.2, "controller": controller}})
    result = train(run)
    assert result.series("kl/beta") == [0.1, 0.2, 0.2]
    assert run.updater.objective.beta == 0.2
    assert run.kl.state()["beta"] == 0.2
    assert run.kl.begin(3) == 0.0


def test_a_controller_is_steered_by_the_kl_of_the_run(tiny_run: Callable[..., Run]) -> None:
    controller = {"name": "interval", "low": 1e-9, "high": 2e-9, "factor": 2, "unit": "token"}
    for place in ("loss", "reward"):
        run = tiny_run(objective={"kl": {"beta": 0.1, "place": place, "controller": controller}})
        result = train(run)
        first, second, third = result.series("kl/beta")
        assert first == 0.1
        assert (second, third) in {(b, c) for b in (0.05, 0.1, 0.2) for c in (b / 2, b, 2 * b)}
        assert third == 2 * second, "the first update has moved the policy by far more than 2e-9 nats"
