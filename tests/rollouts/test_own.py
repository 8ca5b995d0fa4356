"""An engine of the user's: how it is found, and what it is held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.config import load
from groupwise.errors import ConfigError, EngineError
from groupwise.model.load import Policy
from groupwise.records import Rollout
from groupwise.rollouts.engine import Sampling
from groupwise.rollouts.own import OwnEngine
from groupwise.training.inputs import read_inputs
from tests.rollouts.examples import engine_of, random_prompts, token_ids

SAMPLING = Sampling(max_new_tokens=6)
PROMPTS = random_prompts((5, 3))


class Altered:
    """The package's engine with something changed in what it gives."""

    def __init__(
        self, policy: Policy, alter: Callable[[list[list[Rollout]]], Any] = lambda groups: groups
    ) -> None:
        self.inner, self.alter = engine_of(policy), alter
        self.same_as_trainer = True
        self.closed = False

    def generate(self, *given: Any, **more: Any) -> Any:
        return self.alter(self.inner.generate(*given, **more))

    def load_weights(self, version: int, source: Any) -> None:
        self.inner.load_weights(version, source)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def own(policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., OwnEngine]:
    def built(make: Callable[..., Any]) -> OwnEngine:
        monkeypatch.setattr("groupwise.rollouts.own.import_function", lambda name, base: make)
        return OwnEngine("engine.py:make", policy, base=tmp_path)

    return built


def test_it_is_passed_through(own: Callable[..., OwnEngine], policy: Policy) -> None:
    engine = own(Altered)
    assert engine.same_as_trainer is True
    engine.load_weights(5, policy.model)
    got = engine.generate(PROMPTS, SAMPLING, group_size=3, seed=(0, 1), greedy=True)
    assert token_ids(got) == token_ids(
        engine_of(policy).generate(PROMPTS, SAMPLING, group_size=3, seed=(0, 1), greedy=True)
    )
    assert {rollout.policy_version for group in got for rollout in group} == {5}
    engine.close()
    assert isinstance(engine.own, Altered)
    assert engine.own.closed


def first(groups: list[list[Rollout]], **changes: Any) -> list[list[Rollout]]:
    return [[replace(groups[0][0], **changes), *groups[0][1:]], *groups[1:]]


def raises(groups: Any) -> Any:
    raise RuntimeError("the server is asleep")


@pytest.mark.parametrize(
    ("alter", "said"),
    [
        (lambda groups: groups[:1], "gave 1 groups for 2 prompts"),
        (
            lambda groups: [group[::-1] for group in groups],
            r"gave the rollouts \[\('.*:0', 1\), .* in this order",
        ),
        (lambda groups: [group[:1] for group in groups], "gave the rollouts"),
        (lambda groups: first(groups, prompt_id="x:9"), r"\('x:9', 0\)"),
        (
            lambda groups: first(groups, token_ids_T=groups[0][0].token_ids_T + 100_000),
            "outside the vocabulary",
        ),
        (
            lambda groups: first(groups, token_ids_T=groups[0][0].token_ids_T - 100_000),
            "outside the vocabulary",
        ),
        (
            lambda groups: first(groups, sampler_logprobs_T=np.exp(groups[0][0].sampler_logprobs_T)),
            "above 0; take the natural logarithm",
        ),
        (
            lambda groups: first(groups, sampler_logprobs_T=groups[0][0].sampler_logprobs_T * np.nan),
            "not finite",
        ),
        (raises, "failed while sampling: RuntimeError: the server is asleep"),
    ],
)
def test_rollouts_that_are_not_what_was_asked_for(
    own: Callable[..., OwnEngine], alter: Callable[..., Any], said: str
) -> None:
    engine = own(lambda policy: Altered(policy, alter))
    with pytest.raises(EngineError, match=rf"rollout\.engine: .*{said}"):
        engine.generate(PROMPTS, SAMPLING, group_size=2, seed=(0, 1))


def test_too_many_tokens(own: Callable[..., OwnEngine]) -> None:
    class Longer(Altered):
        def generate(self, prompts: Any, sampling: Sampling, **more: Any) -> Any:
            return self.inner.generate(prompts, replace(sampling, max_new_tokens=9), **more)

    with pytest.raises(EngineError, match=r"has [7-9] tokens; there are from 1 to rollout.max_new_tokens, 6"):
        own(Longer).generate(random_prompts((5,) * 8), SAMPLING, group_size=4, seed=(0, 1))


def test_what_is_no_engine(own: Callable[..., OwnEngine]) -> None:
    with pytest.raises(EngineError, match=r"engine.py:make gave a int without same_as_trainer, generate"):
        own(lambda policy: 3)
    with pytest.raises(EngineError, match=r"engine.py:make failed: KeyError: 'port'"):
        own(lambda policy: {}["port"])

    def refuse(policy: Any) -> Any:
        raise EngineError("no server at that address; start one")

    with pytest.raises(EngineError, match="no server"):
        own(refuse)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"engine": "vlm"}, "no engine is called 'vlm'; there are in_process, vllm, or name your own"),
        ({"engine": "e.py:f", "overlap": 1}, "the engine e.py:f samples from the very weights"),
        ({"engine": "e.py:f", "vllm": {}}, "rollout.vllm is set, but rollout.engine is e.py:f"),
        ({"engine": "e.py:f", "pack_weights": False}, "rollout.pack_weights is of the engine in_process"),
        ({"engine": 3}, "3 is not text"),
    ],
)
def test_what_the_configuration_refuses(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load({"rollout": settings})


def test_a_missing_file_is_missed_before_a_model_is_loaded(tmp_path: Path) -> None:
    loaded = load({"rollout": {"engine": "engine.py:make"}, "rewards": ["length"]}, base=tmp_path)
    with pytest.raises(ConfigError, match=r"'engine.py:make': there is no file"):
        read_inputs(loaded, train=[{"prompt": "x"}])
