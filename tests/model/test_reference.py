from pathlib import Path
from typing import Any

import pytest
import torch

from groupwise.config.memory import MemoryConfig
from groupwise.config.model import LoraConfig, ModelConfig, ReferenceConfig
from groupwise.errors import ConfigError
from groupwise.model.load import Policy, load_policy
from groupwise.model.reference import brought, build_reference
from tests.model.parameters import trainable_parameters

IDS = torch.tensor([[5, 6, 7, 2, 9]])


def _policy(lora: LoraConfig | None = None, **model: Any) -> Policy:
    return load_policy(ModelConfig(name="tiny", device="cpu", **model), lora=lora, base=Path.cwd(), seed=1)


def _logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS).logits


def _train_a_little(policy: Policy) -> None:
    parameters = [p for _, p in trainable_parameters(policy.model)]
    optimizer = torch.optim.SGD(parameters, lr=0.5)
    for _ in range(2):  # with LoRA, B is 0 at first, so that A learns from the second update on
        policy.model(IDS).logits.log_softmax(-1)[0, :, 3].sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=4)])
def test_it_is_the_policy_at_the_start_and_stays_so(lora: LoraConfig | None) -> None:
    # Case h01: the KL before any update is 0.
    policy = _policy(lora)
    reference = build_reference(policy, reference=None, lora=lora)
    start = _logits(policy.model)
    with reference.weights():
        assert torch.equal(_logits(reference.model), start)
    _train_a_little(policy)
    assert (_logits(policy.model) - start).abs().max() > 1e-3
    with reference.weights():
        assert torch.equal(_logits(reference.model), start)
    assert (_logits(policy.model) - start).abs().max() > 1e-3
    assert reference.shared == (lora is not None)
    assert (reference.model is policy.model) == (lora is not None)


def test_the_copy_is_frozen_and_apart() -> None:
    policy = _policy()
    policy.model.train()
    reference = build_reference(policy, reference=None, lora=None)
    assert not reference.model.training
    assert not any(p.requires_grad for p in reference.model.parameters())
    assert all(p.requires_grad for p in policy.model.parameters())
    assert policy.model.training
    assert not {p.data_ptr() for p in reference.model.parameters()} & {
        p.data_ptr() for p in policy.model.parameters()
    }
    assert reference.model.lm_head.weight is reference.model.model.embed_tokens.weight


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_its_own_precision(dtype: Any) -> None:
    policy = _policy()
    reference = build_reference(policy, reference=ReferenceConfig(dtype=dtype), lora=None)
    assert {p.dtype for p in reference.model.parameters()} == {getattr(torch, dtype)}
    # Positions keep theirs: frequencies in bfloat16 would turn distant tokens by whole radians.
    frequencies = policy.model.model.rotary_emb.inv_freq
    assert torch.equal(reference.model.model.rotary_emb.inv_freq, frequencies)
    assert {p.dtype for p in policy.model.parameters()} == {torch.float32}
    gap = (_logits(reference.model).float() - _logits(policy.model)).abs().max()
    assert gap < 0.1 if dtype != "float32" else gap == 0


def test_its_own_device() -> None:
    reference = build_reference(_policy(), reference=ReferenceConfig(device="cpu"), lora=None)
    assert reference.device == torch.device("cpu")
    with pytest.raises(ConfigError, match=r"reference\.device 'gpu' is not a device"):
        build_reference(_policy(), reference=ReferenceConfig(device="gpu"), lora=None)


def test_a_reference_section_with_lora_is_an_error() -> None:
    # Case h07: what would have no effect is refused.
    lora = LoraConfig(rank=4)
    with pytest.raises(ConfigError, match="remove the reference section"):
        build_reference(_policy(lora), reference=ReferenceConfig(dtype="bfloat16"), lora=lora)


def test_a_reference_at_rest_is_on_the_device_inside_its_context_alone() -> None:
    policy = _policy()
    reference = build_reference(policy, reference=None, lora=None, memory=MemoryConfig(reference="cpu"))
    assert reference.rests
    assert not reference.shared
    start = _logits(reference.model)
    resting = [p.data_ptr() for p in reference.model.parameters()]
    _train_a_little(policy)
    with reference.weights(), reference.weights():
        assert torch.equal(_logits(reference.model), start)
    assert [p.data_ptr() for p in reference.model.parameters()] == resting
    assert not {p.data_ptr() for p in policy.model.parameters()} & set(resting)


def test_weights_are_brought_back_even_after_a_failure() -> None:
    layer = torch.nn.Linear(3, 2).requires_grad_(False)
    own = layer.weight.data_ptr()
    with pytest.raises(ZeroDivisionError), brought(layer, torch.device("cpu")):  # noqa: PT012
        layer.weight.data = torch.zeros(2, 3)  # as a copy on a device would stand there
        raise ZeroDivisionError
    assert layer.weight.data_ptr() == own


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_reference_at_rest_scores_on_the_gpu() -> None:
    policy = load_policy(ModelConfig(name="tiny", device="cuda"), lora=None, base=Path.cwd(), seed=1)
    reference = build_reference(policy, reference=None, lora=None, memory=MemoryConfig(reference="cpu"))
    assert next(reference.model.parameters()).device.type == "cpu"
    with reference.weights(), torch.no_grad():
        ids = IDS.cuda()
        assert torch.equal(reference.model(ids).logits, policy.model(ids).logits)
    assert next(reference.model.parameters()).device.type == "cpu"
