"""Sampling ahead: the same batches, of weights one step old, corrected; and nothing lost by a checkpoint."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from groupwise.errors import EngineError, RewardError
from groupwise.model.logprobs import TokenLogprobs
from groupwise.rollouts.in_process import InProcessEngine
from groupwise.training.ahead import Ahead
from groupwise.training.loop import train
from groupwise.training.setup import Run
from tests.training.conftest import share_of_vowels

OVERLAPPED = {"engine": "vllm", "overlap": 1, "prompts_per_step": 2, "group_size": 3, "max_new_tokens": 6}
IN_TURN = {**OVERLAPPED, "overlap": 0}
TIMES = ("time/", "memory/", "tokens/per_second")


class OwnWeights(InProcessEngine):
    """Samples from a copy of the weights, as a server does; as slow as it is told to be."""

    same_as_trainer = False

    def __init__(self, run: Run, seconds: float = 0.0) -> None:
        self.trained = run.policy.model
        model = copy.deepcopy(run.policy.model)
        scorer = TokenLogprobs(model, longest_tokens=run.policy.context_tokens)
        super().__init__(replace(run.policy, model=model), scorer, cache_megabytes=64, pack_weights=False)
        self.seconds = seconds
        self.threads: list[str] = []

    def load_weights(self, version: int, source: Any) -> None:
        super().load_weights(version, source)
        self.policy.model.load_state_dict(self.trained.state_dict())

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        self.threads.append(threading.current_thread().name)
        time.sleep(self.seconds)
        return super().generate(*args, **kwargs)


def served(run: Run, seconds: float = 0.0) -> Run:
    return replace(run, engine=OwnWeights(run, seconds))


def lines(run: Run) -> list[dict[str, float]]:
    metrics = train(run).metrics
    return [{name: x for name, x in line.items() if not name.startswith(TIMES)} for line in metrics]


def test_batches_are_of_weights_one_step_old(tiny_run: Callable[..., Run]) -> None:
    """The first batch is on-policy and its step the plain one; each further one is drawn by the weights before the
    last update, with the same prompts and random numbers as in turn."""
    run = served(tiny_run(rollout=OVERLAPPED, training={"steps": 4, "learning_rate": 0.05}))
    plain = served(tiny_run(rollout=IN_TURN, training={"steps": 4, "learning_rate": 0.05}))
    found, expected = lines(run), lines(plain)
    assert [line["sampler/lag_updates_mean"] for line in found] == [0, 1, 1, 1]
    assert [line["sampler/lag_updates_mean"] for line in expected] == [0, 0, 0, 0]
    same = found[0].keys() - {"training/epoch"}  # prompts of the next batch are taken already
    assert {name: found[0][name] for name in same} == {name: expected[0][name] for name in same}
    # The second batch is drawn by the weights of the start in one and of the first update in the other.
    assert found[1]["sampler/gap_abs_mean"] > 100 * expected[1]["sampler/gap_abs_mean"]
    assert found[1]["sampler/effective_fraction"] < expected[1]["sampler/effective_fraction"]
    assert expected[1]["sampler/effective_fraction"] == pytest.approx(1, abs=1e-4)
    engine = run.engine
    assert isinstance(engine, OwnWeights)
    assert engine.threads == ["MainThread", *(f"groupwise-step-{step}" for step in (2, 3, 4))]


def test_off_is_the_plain_loop_bit_for_bit(tiny_run: Callable[..., Run]) -> None:
    """An engine with weights of its own, in turn, against sampling in process with old log-probs by the trainer."""
    settings: dict[str, Any] = {"objective": {"kl": {"beta": 0.0}, "old_source": "trainer"}}
    plain = tiny_run(
        rollout={"prompts_per_step": 2, "group_size": 3, "max_new_tokens": 6, "pack_weights": False},
        training={"steps": 3, "reuse_sampling": False},
        **settings,
    )
    in_turn = served(tiny_run(rollout=IN_TURN, training={"steps": 3}, **settings))
    assert lines(in_turn) == lines(plain)


def test_two_overlapped_runs_are_alike(tiny_run: Callable[..., Run]) -> None:
    first, second = (lines(served(tiny_run(rollout=OVERLAPPED))) for _ in range(2))
    assert first == second


def test_a_checkpoint_does_not_know_of_the_batch_ahead(tiny_run: Callable[..., Run]) -> None:
    """Resumed, the batch is drawn again, with the prompts that it would have had."""
    run = served(tiny_run(rollout=OVERLAPPED, training={"steps": 3}))
    states: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = []
    start = run.ahead.start

    def started(step: int, draw: Callable[[], Any], parts: Mapping[str, Any]) -> None:
        before = copy.deepcopy(run.order.state())
        start(step, draw, parts)
        run.ahead.wait()
        states.append((before, run.order.state()))
        np.testing.assert_equal(run.parts["order"].state(), before)

    run.ahead.start = started  # type: ignore[method-assign]
    train(run)
    assert len(states) == 2
    for before, after in states:
        assert str(before) != str(after)
    assert run.parts["order"] is run.order, "nothing is ahead at the end"


def test_what_goes_wrong_ahead_ends_the_run(tiny_run: Callable[..., Run]) -> None:
    calls: list[int] = []

    def late(completions: list[str], **columns: Any) -> list[float]:
        calls.append(1)
        if len(calls) == 3:
            raise ValueError("no more")
        return share_of_vowels(completions)

    class Breaks(OwnWeights):
        def generate(self, *args: Any, **kwargs: Any) -> Any:
            if len(self.threads) == 2:
                raise EngineError("the server is lost")
            return super().generate(*args, **kwargs)

    run = tiny_run(rollout=OVERLAPPED)
    with pytest.raises(EngineError, match="the server is lost"):
        train(replace(run, engine=Breaks(run)))
    run = served(tiny_run(reward=late, rollout=OVERLAPPED))
    with pytest.raises(RewardError, match="no more"):
        train(run)


def test_a_batch_of_weights_that_are_given_up_is_dropped() -> None:
    ahead, drawn = Ahead(), []

    def draw() -> Any:
        drawn.append(len(drawn))
        return drawn[-1]

    ahead.start(1, draw, {})
    ahead.drop()
    assert ahead.take(1, draw) == 1  # drawn anew
    ahead.start(2, draw, {})
    assert ahead.take(2, draw) == 2  # the one ahead
