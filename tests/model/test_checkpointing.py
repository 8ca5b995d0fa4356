from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from groupwise.config.model import LoraConfig
from groupwise.errors import ConfigError
from groupwise.model.checkpointing import checkpoint_layers
from groupwise.model.load import Policy
from groupwise.model.logprobs import TokenLogprobs
from groupwise.model.lora import attach
from tests.model.families import gradient_of, random_families, relative

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt2"])
@pytest.mark.parametrize("share_prefix", [True, False])
@pytest.mark.parametrize("precision", [None, torch.bfloat16])
def test_layers_are_computed_again_and_gradients_are_the_same(
    build_policy: Callable[..., Policy], architecture: str, share_prefix: bool, precision: torch.dtype | None
) -> None:
    policy = build_policy(architecture=architecture)
    scorer = TokenLogprobs(policy.model, longest_tokens=64, share_prefix=share_prefix, precision=precision)
    layers = policy.model.transformer.h if architecture == "gpt2" else policy.model.model.layers
    inner = layers[0].attn if architecture == "gpt2" else layers[0].self_attn
    runs: list[int] = []
    inner.register_forward_hook(lambda *_: runs.append(1))
    policy.model.train()
    families = random_families()
    right = gradient_of(policy.model, *scorer(families, temperature=0.7))
    assert len(runs) == 1
    checkpoint_layers(policy)
    found = gradient_of(policy.model, *scorer(families, temperature=0.7))
    assert len(runs) == 3, "once forward, once more in the backward pass"
    assert torch.equal(found, right)


def test_below_an_adapter(policy: Policy) -> None:
    policy = replace(policy, model=attach(policy.model, LoraConfig(rank=4), seed=0), lora=True)
    scorer = TokenLogprobs(policy.model, longest_tokens=64)
    families = random_families()
    policy.model.train()
    right = gradient_of(policy.model, *scorer(families, temperature=0.7))
    checkpoint_layers(policy)
    assert relative(gradient_of(policy.model, *scorer(families, temperature=0.7)), right) < 1e-6


def test_a_model_that_cannot(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(policy.model), "supports_gradient_checkpointing", False)
    with pytest.raises(
        ConfigError, match=r"gradient_checkpointing is on, but \w+ does not support it.*micro_batch_tokens"
    ):
        checkpoint_layers(policy)
