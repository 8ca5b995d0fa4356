"""The critic's values: of which tokens, from which weights, at what cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.config.critic import CriticConfig
from groupwise.config.model import LoraConfig
from groupwise.model.critic import Critic, build_critic, memory_of
from groupwise.model.load import Policy
from groupwise.model.logprobs import TokenLogprobs
from groupwise.model.lora import attach
from groupwise.model.shared_prefix import Family

RNG = np.random.default_rng(0)


def ids(count: int) -> np.ndarray:
    return RNG.integers(3, 300, count).astype(np.int32)


FAMILIES = [
    Family(prompt_ids=ids(6), responses=[ids(5), ids(2), ids(7)]),
    Family(prompt_ids=ids(3), responses=[ids(1), ids(4)]),
]
TOKENS = 5 + 2 + 7 + 1 + 4


def critic_of(policy: Policy, backbone: Any = "own", *, share_prefix: bool = True) -> Critic:
    scorer = TokenLogprobs(policy.model, longest_tokens=32, share_prefix=share_prefix)
    critic = build_critic(policy, scorer, CriticConfig(backbone=backbone), longest_tokens=32)
    assert critic.scorer.shared == share_prefix
    return critic


def spoken(critic: Critic) -> Critic:
    """With a head that says something."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        weight = critic.value_head.weight
        weight.copy_(torch.randn(weight.shape, generator=generator))
        critic.value_head.bias.fill_(0.5)
    return critic


@pytest.mark.parametrize("backbone", ["own", "policy"])
def test_an_untrained_critic_expects_nothing(policy: Policy, backbone: str) -> None:
    values = critic_of(policy, backbone)(FAMILIES)
    assert values.shape == (TOKENS,)
    assert values.dtype == torch.float32
    assert values.tolist() == [0.0] * TOKENS


@pytest.mark.parametrize("share_prefix", [True, False])
def test_values_are_of_the_hidden_state_before_each_token(policy: Policy, share_prefix: bool) -> None:
    critic = spoken(critic_of(policy, share_prefix=share_prefix))
    with torch.no_grad():
        found = critic(FAMILIES)
        expected = []
        for family in FAMILIES:
            for response in family.responses:
                whole = torch.from_numpy(np.concatenate([family.prompt_ids, response]).astype(np.int64))[None]
                states = policy.model.model(input_ids=whole).last_hidden_state[0]
                before = states[len(family.prompt_ids) - 1 : -1]
                expected.append((before @ critic.value_head.weight.T)[:, 0] + 0.5)
    torch.testing.assert_close(found, torch.cat(expected), atol=1e-4, rtol=1e-4)


def test_a_value_does_not_know_the_token_that_follows(policy: Policy) -> None:
    critic = spoken(critic_of(policy))
    prompt, response = ids(4), ids(6)
    other = response.copy()
    other[3] = 301
    with torch.no_grad():
        one, two = (critic([Family(prompt_ids=prompt, responses=[r])]) for r in (response, other))
    torch.testing.assert_close(one[:4], two[:4], atol=1e-5, rtol=0)
    assert (one[4:] - two[4:]).abs().min() > 1e-3


def test_its_own_backbone_learns_and_the_policy_gets_no_gradient(policy: Policy) -> None:
    critic = spoken(critic_of(policy))
    critic(FAMILIES).pow(2).sum().backward()
    assert all(p.grad is None for p in policy.model.parameters())
    with_gradient = {name for name, p in critic.named_parameters() if p.grad is not None}
    assert "value_head.weight" in with_gradient
    assert any("layers.0" in name for name in with_gradient)
    beginning = dict(policy.model.named_parameters())
    assert all(
        torch.equal(p, beginning[n.removeprefix("own.")])
        for n, p in critic.named_parameters()
        if n[:4] == "own."
    )


def test_on_the_policys_backbone_only_the_head_learns(policy: Policy) -> None:
    critic = spoken(critic_of(policy, "policy"))
    critic(FAMILIES).pow(2).sum().backward()
    assert all(p.grad is None for p in policy.model.parameters())
    assert {name for name, _ in critic.named_parameters()} == {"value_head.weight", "value_head.bias"}
    assert critic.value_head.weight.grad is not None
    # It sees the policy as it is now, not as it was.
    before = critic(FAMILIES).detach()
    with torch.no_grad():
        for p in policy.model.parameters():
            p.mul_(1.1)
    assert (critic(FAMILIES) - before).abs().max() > 1e-3


def test_memory_is_what_the_weights_take(build_policy: Callable[..., Policy]) -> None:
    policy = build_policy(tied=False)
    of_policy, of_critic = memory_of(policy.model.parameters()), memory_of(critic_of(policy).parameters())
    count = sum(p.numel() for p in policy.model.parameters())
    assert of_policy.weights == 4 * count
    assert of_policy.training == 3 * 4 * count
    # The head over the vocabulary is held but not trained; the value head is.
    vocabulary = policy.model.get_output_embeddings().weight.numel()
    head = policy.model.config.hidden_size + 1
    assert of_critic.weights == 4 * (count + head)
    assert of_critic.training == 3 * 4 * (count - vocabulary + head)
    shared = memory_of(critic_of(policy, "policy").parameters())
    assert shared.total == 4 * 4 * head


def test_with_lora_it_trains_an_adapter_of_its_own(policy: Policy) -> None:
    import dataclasses

    tuned = dataclasses.replace(policy, model=attach(policy.model, LoraConfig(rank=4), seed=0), lora=True)
    critic = spoken(critic_of(tuned))
    critic(FAMILIES).pow(2).sum().backward()
    trained = {name for name, p in critic.named_parameters() if p.requires_grad}
    assert all("lora_" in name or name.startswith("value_head") for name in trained)
    assert all(p.grad is None for p in tuned.model.parameters())
    assert any(p.grad is not None for n, p in critic.named_parameters() if "lora_B" in n)
