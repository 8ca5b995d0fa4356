"""Weights that are sent to a stand-in for a vLLM server, over gloo, in place of a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from groupwise.errors import EngineError
from groupwise.model.load import Policy
from groupwise.rollouts.engine import Sampling
from groupwise.rollouts.vllm.engine import VllmEngine
from groupwise.rollouts.vllm.server import free_port
from groupwise.training.transfer import copied
from tests.rollouts.engine_contract import SAMPLINGS, check_numbers
from tests.rollouts.examples import random_prompts, token_ids
from tests.rollouts.vllm.stub import Stub, running

PLAIN = Sampling(max_new_tokens=6)
PROMPTS = random_prompts((5, 9))


def scale(policy: Policy, factor: float) -> None:
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(factor)


def test_each_version_is_sent_whole(
    ask: Callable[..., VllmEngine], stub: Stub, policy: Policy, tmp_path: Path
) -> None:
    """The server's log-probs are those of a forward pass with the newest weights; no folder is written."""
    engine = ask(transfer="gloo")
    for version in range(3):
        scale(policy, 1.2)
        engine.load_weights(version, policy.model)
        found = engine.generate(PROMPTS, SAMPLINGS["plain"], group_size=2, seed=(0,))
        for prompt, rollouts in zip(PROMPTS, found, strict=True):
            for rollout in rollouts:
                assert rollout.policy_version == version
                check_numbers(rollout, prompt, policy, SAMPLINGS["plain"], 1e-4)
    paths = stub.told["paths"]
    assert (paths.count("/init_weight_transfer_engine"), paths.count("/update_weights")) == (1, 3)
    assert not (tmp_path / "weights").exists()


def test_what_is_sent_again_is_what_was_sent(
    ask: Callable[..., VllmEngine], stub: Stub, policy: Policy
) -> None:
    """As with overlap: the policy has been changed since, and the server given weights by somebody else."""
    engine = ask(transfer="gloo")
    engine.load_weights(3, policy.model)
    expected = token_ids(engine.generate(PROMPTS, PLAIN, group_size=3, seed=(0,)))
    scale(policy, -1.0)
    stub.faults(others=1)
    assert token_ids(engine.generate(PROMPTS, PLAIN, group_size=3, seed=(0,))) == expected
    assert stub.told["paths"].count("/update_weights") == 1


def test_a_server_that_was_started_anew_is_met_again(
    ask: Callable[..., VllmEngine], start: Path, policy: Policy
) -> None:
    port = free_port()
    words = "--model", str(start)
    with running(port, *words) as stub:
        engine = ask(stub.url, transfer="gloo")
        engine.load_weights(3, policy.model)
        expected = token_ids(engine.generate(PROMPTS, PLAIN, group_size=3, seed=(0,)))
    scale(policy, -1.0)
    with running(port, *words) as stub:
        assert token_ids(engine.generate(PROMPTS, PLAIN, group_size=3, seed=(0,))) == expected
        assert stub.told["paths"].count("/init_weight_transfer_engine") == 1


def test_a_server_that_does_not_take_what_is_sent_is_found_out(
    ask: Callable[..., VllmEngine], stub: Stub, policy: Policy
) -> None:
    engine = ask(transfer="gloo", retry_seconds=1.0)
    stub.faults(stale=True)
    with pytest.raises(EngineError, match=r"was given the weights test-1-version-4"):
        engine.load_weights(4, policy.model)


@pytest.mark.parametrize("first", [True, False])
def test_a_copy_holds_tied_weights_once_and_stays(policy: Policy, first: bool) -> None:
    weights = copied(policy, first=first)
    if not first:
        assert weights == {}
        return
    own = dict(policy.model.named_parameters())
    assert weights.keys() == own.keys(), "the head is the embedding"
    assert "lm_head.weight" not in weights
    before = {name: tensor.clone() for name, tensor in own.items()}
    scale(policy, 2.0)
    assert all(torch.equal(weights[name], before[name]) for name in before)
