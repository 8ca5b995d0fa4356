"""Numbers that are not finite are kept from the weights, and their source is named."""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from groupwise.errors import EngineError, GroupwiseError, RewardError, TrainingError
from groupwise.model.logprobs import TokenLogprobs
from groupwise.training import logprobs as scored
from groupwise.training.loop import train
from groupwise.training.setup import Run

BAD = [math.nan, math.inf, -math.inf]
KL = {"kl": {"beta": 0.1}}


def finite(run: Run) -> bool:
    return all(bool(p.isfinite().all()) for p in run.policy.model.parameters())


def faults(run: Run) -> list[dict[str, Any]]:
    path = run.folder.health_file
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line for line in lines if line["kind"] == "skipped_update"]


def nothing_bad_is_saved(run: Run) -> None:
    from safetensors.torch import load_file

    for path in run.folder.path.rglob("*.safetensors"):
        assert all(bool(each.isfinite().all()) for each in load_file(path).values()), path


class Planted:
    """A scorer of responses that gives one wrong log-prob, at one call."""

    def __init__(self, scorer: TokenLogprobs, value: float, at: int) -> None:
        self.scorer, self.value, self.left = scorer, value, at

    def __getattr__(self, name: str) -> Any:
        return getattr(self.scorer, name)

    def __call__(self, families: Any, *, temperature: float, reuse: bool = False) -> tuple[Tensor, Tensor]:
        logprobs, entropy = self.scorer(families, temperature=temperature, reuse=reuse)
        self.left -= 1
        if self.left == 0:
            hole = torch.zeros_like(logprobs)
            hole[3] = self.value
            logprobs = logprobs + hole
        return logprobs, entropy


@pytest.mark.parametrize("value", BAD)
def test_a_reward(tiny_run: Callable[..., Run], value: float) -> None:
    def reward(completions: list[str], **columns: Any) -> list[float]:
        return [value, *(float(len(c)) for c in completions[1:])]

    run = tiny_run(reward=reward)
    with pytest.raises(RewardError, match="reward") as raised:
        train(run)
    assert str(value).strip("-") in str(raised.value)
    assert finite(run)


@pytest.mark.parametrize("value", BAD)
def test_a_weight_at_a_step(tiny_run: Callable[..., Run], value: float) -> None:
    made: list[Run] = []

    def reward(completions: list[str], **columns: Any) -> list[float]:
        if made[0].keeper.step == 1:
            with torch.no_grad():
                made[0].policy.model.get_input_embeddings().weight[0, 0] = value
        return [float(len(c)) for c in completions]

    run = tiny_run(reward=reward, checkpoint={"every_steps": 1}, run={"save_model": True})
    made.append(run)
    with pytest.raises(GroupwiseError, match="weights") as raised:
        train(run)
    assert isinstance(raised.value, EngineError | TrainingError)
    nothing_bad_is_saved(run)


@pytest.mark.parametrize("value", BAD)
def test_a_log_prob_of_the_policy(tiny_run: Callable[..., Run], value: float) -> None:
    run = tiny_run(training={"steps": 3, "learning_rate": 1e-3, "max_bad_steps": 2})
    before = [p.clone() for p in run.optimizer.parameters]
    object.__setattr__(run.updater.forward, "scorer", Planted(run.updater.forward.scorer, value, at=1))
    result = train(run)
    assert result.series("training/skipped_updates") == [1.0, 0.0, 0.0]
    assert result.series("training/updates") == [0.0, 1.0, 2.0]
    assert finite(run)
    assert any(not torch.equal(a, b) for a, b in zip(before, run.optimizer.parameters, strict=True))
    (fault,) = faults(run)
    assert (fault["step"], fault["kind"], fault["source"]) == (1, "skipped_update", "policy log-prob")
    place = fault["rollouts"][0]
    assert place["value"] in ("NaN", "Infinity", "-Infinity")
    assert place["prompt_id"].startswith("train:")
    assert f"token {place['token']} of rollout {place['group_index']}" in fault["sentence"]


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("which", ["old", "reference"])
@pytest.mark.parametrize("place", ["loss", "reward"])
def test_a_log_prob_that_advantages_are_made_from(
    tiny_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, value: float, which: str, place: str
) -> None:
    calls = 0
    right = scored.score_responses

    def wrong(*given: Any) -> list[np.ndarray[Any, Any]]:
        nonlocal calls
        calls += 1
        arrays = right(*given)
        if calls == (1 if which == "old" else 2):
            arrays[2][1] = value
        return arrays

    monkeypatch.setattr(scored, "score_responses", wrong)
    kl = {"beta": 0.1, "place": place, **({"estimator": "k1"} if place == "reward" else {})}
    run = tiny_run(objective={"kl": kl, "old_source": "trainer"})
    result = train(run)
    assert result.series("training/skipped_updates") == [1.0, 0.0, 0.0]
    (fault,) = faults(run)
    assert fault["source"] == f"{which} log-prob"
    assert fault["rollouts"] == [
        {
            "prompt_id": fault["rollouts"][0]["prompt_id"],
            "group_index": 2,
            "token": 1,
            "value": {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)],
        }
    ]
    assert finite(run)


@pytest.mark.parametrize("value", BAD)
def test_the_kl(tiny_run: Callable[..., Run], value: float) -> None:
    run = tiny_run(objective=KL, training={"steps": 3, "learning_rate": 1e-3, "max_bad_steps": 3})
    right = run.updater.objective.kl

    def wrong(policy_M: Tensor, reference_M: Tensor, *others: Tensor) -> Tensor:
        kl_M = right(policy_M, reference_M, *others)
        return torch.cat([kl_M[:-1], kl_M[-1:] + value])

    object.__setattr__(run.updater.objective, "kl", wrong)
    with pytest.raises(TrainingError, match="3 updates in a row were skipped") as raised:
        train(run)
    assert "KL" in str(raised.value)
    assert [f["source"] for f in faults(run)] == ["KL overflow"] * 3
    assert finite(run)
    nothing_bad_is_saved(run)


def test_a_gradient_is_named_by_its_weights_and_the_likeliest_token(tiny_run: Callable[..., Run]) -> None:
    run = tiny_run()
    hooked = run.optimizer.parameters[3]
    hooked.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(TrainingError, match="3 updates in a row"):
        train(run)
    assert [f["source"] for f in faults(run)] == ["gradient"] * 3
    assert run.optimizer.names[3] in faults(run)[0]["sentence"]
    assert finite(run)


def test_a_step_that_spoils_the_weights_ends_the_run_before_they_are_saved(
    tiny_run: Callable[..., Run],
) -> None:
    run = tiny_run(checkpoint={"every_steps": 1}, training={"steps": 3, "learning_rate": 1e39})
    with pytest.raises(TrainingError, match="left NaN or infinity in the weights"):
        train(run)
    nothing_bad_is_saved(run)


def test_skipped_steps_in_a_row_are_counted_over_an_interruption(tiny_run: Callable[..., Run]) -> None:
    run = tiny_run()
    run.updater.guard.restore({"updates": 4, "bad_in_a_row": 2})
    run.updater.forward.scorer.model.get_output_embeddings().weight.register_hook(lambda g: g * math.nan)
    with pytest.raises(TrainingError, match="3 updates in a row"):
        train(run)
    assert len(faults(run)) == 1


@pytest.mark.parametrize("value", BAD)
def test_a_value_of_the_critic(
    tiny_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    run = tiny_run(
        objective={"preset": "ppo", "kl": {"beta": 0.1}},
        training={"steps": 3, "learning_rate": 1e-3, "max_bad_steps": 3},
    )
    assert run.critic is not None
    right, calls = run.critic.values, 0

    def wrong(judged: Any) -> Any:
        nonlocal calls
        calls += 1
        values = right(judged)
        if calls == 1:
            values[1][2][0] = value
        return values

    monkeypatch.setattr(run.critic, "values", wrong)
    result = train(run)
    assert result.series("training/skipped_updates")[0] == 1.0
    (fault,) = faults(run)
    assert (fault["source"], fault["rollouts"][0]["token"], fault["rollouts"][0]["group_index"]) == (
        "value",
        0,
        2,
    )
    assert all(bool(p.isfinite().all()) for p in run.critic.critic.parameters())
    assert finite(run)
