"""The engine against a stand-in for a vLLM server: a process of its own that answers over HTTP, with a real model."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.config.model import LoraConfig
from groupwise.errors import EngineError
from groupwise.model.load import Policy
from groupwise.model.lora import attach
from groupwise.records import Prompt
from groupwise.rollouts.engine import Engine, Sampling
from groupwise.rollouts.vllm.engine import VllmEngine, seed_of
from tests.rollouts.engine_contract import SAMPLINGS, STOPS, EngineContract
from tests.rollouts.examples import random_prompts, token_ids
from tests.rollouts.vllm.stub import Stub, engine_at, running

PLAIN = Sampling(max_new_tokens=6)


@pytest.fixture
def prompts() -> list[Prompt]:
    return random_prompts((5, 9))


@pytest.fixture
def engine(ask: Callable[..., VllmEngine]) -> VllmEngine:
    return ask()


class TestVllm(EngineContract):
    gives_kept_mass = False

    @pytest.fixture(autouse=True)
    def _place(self, stub: Stub, tmp_path: Path) -> None:
        self.url, self.root = stub.url, tmp_path

    def build(self, policy: Policy) -> Engine:
        return engine_at(self.url, policy, self.root)


def test_one_request_asks_for_a_group(engine: VllmEngine, stub: Stub, policy: Policy) -> None:
    """Token ids, all that decides the distribution, and a seed of the prompt's own."""
    [prompt] = random_prompts([4])
    engine.load_weights(0, policy.model)
    stub.faults()
    sampling = Sampling(max_new_tokens=6, temperature=0.7, top_p=0.9, top_k=20, min_p=0.01)
    [rollouts] = engine.generate([prompt], sampling, group_size=5, seed=(3, 1), greedy=True)
    assert [r.group_index for r in rollouts] == list(range(6))
    drawn, greedy = sorted(stub.told["asked"], key=lambda body: -body["sampling_params"]["temperature"])
    assert drawn["token_ids"] == greedy["token_ids"] == prompt.token_ids.tolist()
    always = {
        "max_tokens": 6,
        "stop_token_ids": list(policy.stop_token_ids),
        "ignore_eos": True,
        "logprobs": 0,
        "detokenize": False,
    }
    assert greedy["sampling_params"] == {"temperature": 0.0, "n": 1, **always}
    seed = seed_of((3, 1), prompt.id)
    assert drawn["sampling_params"] == {
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 20,
        "min_p": 0.01,
        "n": 5,
        "seed": seed,
        **always,
    }


def test_seeds_differ_by_run_step_and_prompt_and_leave_room_for_the_index() -> None:
    seeds = [seed_of(seed, name) for seed in ((0, 1), (0, 2), (1, 1)) for name in ("a:0", "a:1")]
    assert len(set(seeds)) == 6
    assert all(0 <= seed < 2**62 for seed in seeds)
    assert seed_of((0, 1), "a:0") == seed_of([np.int64(0), np.int64(1)], "a:0")


def test_a_prompt_of_its_own_limit(engine: VllmEngine) -> None:
    [prompt] = random_prompts([4])
    [[rollout]] = engine.generate([replace(prompt, max_new_tokens=2)], PLAIN, group_size=1, seed=(0,))
    assert len(rollout.token_ids_T) <= 2


@pytest.mark.parametrize("fault", ["busy", "aborted", "mixed", "others"])
def test_what_is_lost_is_sampled_again_and_comes_out_the_same(
    engine: VllmEngine, stub: Stub, prompts: list[Prompt], caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    """An overloaded server, an aborted request, weights changed on the way, weights of somebody else."""
    expected = token_ids(engine.generate(prompts, PLAIN, group_size=3, seed=(0,)))
    stub.faults(**{fault: 1})
    with caplog.at_level(logging.WARNING, logger="groupwise"):
        found = engine.generate(prompts, PLAIN, group_size=3, seed=(0,))
    assert token_ids(found) == expected
    assert all(rollout.policy_version == 0 for group in found for rollout in group)
    assert "was lost" in caplog.text
    given_again = "/update_weights" in stub.told["paths"]
    assert given_again == (fault == "others")


def test_what_was_computed_of_prompts_with_old_weights_is_forgotten(
    engine: VllmEngine, stub: Stub, policy: Policy, prompts: list[Prompt]
) -> None:
    """Case i02: the same prompt before and after a large update is scored as by a server that never saw it before."""
    from tests.rollouts.engine_contract import check_numbers

    engine.generate(prompts, SAMPLINGS["plain"], group_size=2, seed=(0,))
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.5)
    engine.load_weights(1, policy.model)
    for prompt, rollouts in zip(
        prompts, engine.generate(prompts, SAMPLINGS["plain"], group_size=2, seed=(0,)), strict=True
    ):
        for rollout in rollouts:
            check_numbers(rollout, prompt, policy, SAMPLINGS["plain"], 1e-4)
    assert stub.told["paths"].count("/reset_prefix_cache") == 2


def test_a_server_that_keeps_old_weights_is_found_out(
    ask: Callable[..., VllmEngine], stub: Stub, policy: Policy, prompts: list[Prompt]
) -> None:
    # Case i01.
    engine = ask(retry_seconds=1.0)
    engine.generate(prompts, PLAIN, group_size=2, seed=(0,))
    stub.faults(stale=True)
    with pytest.raises(EngineError, match=r"was given the weights test-2-version-4.*--resume"):
        engine.load_weights(4, policy.model)


def test_a_server_that_never_has_the_right_weights_is_given_up(
    ask: Callable[..., VllmEngine], stub: Stub, policy: Policy, prompts: list[Prompt]
) -> None:
    engine = ask(retry_seconds=1.0)
    stub.faults(mixed=-1)  # never used up
    with pytest.raises(EngineError, match=r"before, test-1-version-0 instead of test-1-version-0"):
        engine.generate(prompts, PLAIN, group_size=2, seed=(0,))


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        ({"refuse": -1}, r"refuses /inference/v1/generate: n must be at most 2 \(status 400\)"),
        ({"silent": True}, r"does not say which weights"),
        ({"too_few": True}, r"1 responses instead of 2"),
        ({"not_finite": True}, r"not finite"),
    ],
)
def test_what_cannot_pass_ends_at_once(
    engine: VllmEngine,
    stub: Stub,
    policy: Policy,
    prompts: list[Prompt],
    faults: dict[str, Any],
    sentence: str,
) -> None:
    engine.load_weights(0, policy.model)
    stub.faults(**faults)
    with pytest.raises(EngineError, match=sentence):
        engine.generate(prompts, PLAIN, group_size=2, seed=(0,))


def test_logprobs_without_the_temperature_are_refused(
    ask: Callable[..., VllmEngine], stub: Stub, policy: Policy
) -> None:
    stub.faults(raw=True)
    engine = ask()
    with pytest.raises(EngineError, match="--logprobs-mode processed_logprobs"):
        engine.load_weights(0, policy.model)


@pytest.mark.parametrize("path", ["/inference/v1/generate", "/pause", "/update_weights"])
def test_a_server_that_was_not_started_for_training_is_refused(
    ask: Callable[..., VllmEngine], stub: Stub, prompts: list[Prompt], path: str
) -> None:
    stub.faults(missing=path)
    engine = ask()
    with pytest.raises(EngineError, match=rf"has no {path}.*docs/serving\.md"):
        engine.generate(prompts, PLAIN, group_size=2, seed=(0,))


def test_no_server_at_all(ask: Callable[..., VllmEngine], policy: Policy) -> None:
    engine = ask("http://127.0.0.1:9", start_seconds=0.5)
    with pytest.raises(
        EngineError, match=r"no server answers at http://127\.0\.0\.1:9 \(rollout\.vllm\.base_url\)"
    ):
        engine.load_weights(0, policy.model)


def test_weights_lie_about_only_until_the_next_are_loaded(
    engine: VllmEngine, stub: Stub, policy: Policy, tmp_path: Path
) -> None:
    for version in range(3):
        engine.load_weights(version, policy.model)
        assert [path.name for path in (tmp_path / "weights").iterdir()] == [
            f"test-{version + 1}-version-{version}"
        ]
    stub.faults(busy_updates=2)
    engine.load_weights(3, policy.model)
    assert stub.told["paths"].count("/update_weights") == 3


@pytest.fixture
def adapted(build_policy: Callable[..., Policy]) -> Policy:
    """With an adapter that does something."""
    plain = build_policy(3, stop_token_ids=STOPS)
    model = attach(plain.model, LoraConfig(rank=4, target_modules=("q_proj", "v_proj")), seed=0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3)
    return replace(plain, model=model, lora=True)


def test_an_adapter_is_handed_over_as_one(
    ask: Callable[..., VllmEngine], adapted: Policy, prompts: list[Prompt], tmp_path: Path
) -> None:
    """The base is loaded once; each version is an adapter of its own, asked for by its name; the one before leaves."""
    from groupwise.training.serving import write_base
    from tests.rollouts.engine_contract import check_numbers
    from tests.rollouts.vllm.stub import alone

    write_base(adapted, tmp_path / "base", by=alone)
    with running(None, "--model", str(tmp_path / "base")) as stub:
        engine = ask(stub.url, adapted)
        for version in (0, 5):
            engine.load_weights(version, adapted.model)
            found = engine.generate(prompts, SAMPLINGS["plain"], group_size=2, seed=(0,))
            for prompt, rollouts in zip(prompts, found, strict=True):
                for rollout in rollouts:
                    assert rollout.policy_version == version
                    check_numbers(rollout, prompt, adapted, SAMPLINGS["plain"], 1e-4)
            with torch.no_grad():
                for name, parameter in adapted.model.named_parameters():
                    if "lora_B" in name:
                        parameter.mul_(-1)
        told = stub.told
        names = {body.get("model") for body in told["asked"]}
        assert names == {"test-1-version-0", "test-2-version-5"}
        assert "/update_weights" not in told["paths"]
        assert told["paths"].count("/v1/unload_lora_adapter") == 1
