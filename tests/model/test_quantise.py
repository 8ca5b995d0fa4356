"""Layers in 4 bit below an adapter. The levels are those of Dettmers et al. 2023 (arXiv:2305.14314), appendix E."""

import copy
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from groupwise.checkpoint.export import save_model
from groupwise.config.critic import CriticConfig
from groupwise.config.memory import MemoryConfig
from groupwise.config.model import LoraConfig, ModelConfig
from groupwise.errors import CheckpointError, ConfigError
from groupwise.model.critic import build_critic
from groupwise.model.load import Policy, load_policy
from groupwise.model.logprobs import TokenLogprobs
from groupwise.model.lora import merged_weights, reference_weights
from groupwise.model.quantise import bits_per_weight, is_quantised, plain_weight
from groupwise.model.shared_prefix import Family
from tests.model.parameters import trainable_parameters

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="needs the extra quant"),
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]

LEVELS = np.array(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ]
)
IDS = torch.tensor([[5, 6, 7, 2, 9, 11, 40]])
FAMILY = Family(
    prompt_ids=np.array([5, 6, 7], dtype=np.int32),
    responses=[np.array([9, 11, 40], dtype=np.int32), np.array([9, 3], dtype=np.int32)],
)


def _policy(lora: LoraConfig | None = None, **memory: object) -> Policy:
    return load_policy(
        ModelConfig(name="tiny", device="cpu"),
        lora=lora or LoraConfig(rank=4),
        base=Path.cwd(),
        seed=1,
        memory=MemoryConfig.model_validate({"quantise": "nf4", **memory}),
    )


def _plain() -> torch.nn.Module:
    return load_policy(ModelConfig(name="tiny", device="cpu"), lora=None, base=Path.cwd(), seed=1).model


def _stir(policy: Policy) -> None:
    generator = torch.Generator().manual_seed(0)
    for _, parameter in trainable_parameters(policy.model):
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)


def _nearest(weight: np.ndarray) -> np.ndarray:
    """Each weight as the nearest level times the largest of its block of 64: the definition, one block at a time."""
    out = np.empty(weight.size)
    flat = weight.reshape(-1).astype(np.float64)
    for start in range(0, flat.size, 64):
        block = flat[start : start + 64]
        scale = np.abs(block).max()
        nearest = np.abs(block[:, None] / scale - LEVELS[None, :]).argmin(1)
        out[start : start + 64] = LEVELS[nearest] * scale
    return out.reshape(weight.shape)


def test_a_weight_is_the_nearest_of_sixteen_levels_times_the_largest_of_its_block() -> None:
    policy = _policy(quantise_scales=False)
    base = policy.model.get_base_model()
    own = _plain().model.layers[1].mlp.down_proj.weight.detach().numpy()
    layer = base.model.layers[1].mlp.down_proj.base_layer
    np.testing.assert_allclose(plain_weight(layer).numpy(), _nearest(own), atol=1e-6)


def test_quantised_scales_move_a_weight_by_little() -> None:
    # A scale of 8 bits is off by at most half a step of 256 levels over twice the largest; 2 % is generous.
    layer = _policy().model.get_base_model().model.layers[0].self_attn.q_proj.base_layer
    own = _plain().model.layers[0].self_attn.q_proj.weight.detach().numpy()
    gap = np.abs(plain_weight(layer).numpy() - _nearest(own)).max()
    assert 0 < gap < 0.02 * np.abs(own).max()


def test_every_linear_layer_but_the_head_is_in_4_bit_and_the_rest_is_as_it_was() -> None:
    policy, plain = _policy(), _plain()
    quantised = [n for n, m in policy.model.named_modules() if is_quantised(m)]
    assert len(quantised) == 2 * 7
    assert all(n.endswith(".base_layer") for n in quantised)
    own = policy.model.get_base_model()
    assert torch.equal(own.get_input_embeddings().weight, plain.get_input_embeddings().weight)
    assert type(own.get_output_embeddings()) is torch.nn.Linear
    adapter = sum(p.numel() for _, p in trainable_parameters(policy.model))
    assert policy.millions == pytest.approx((sum(p.numel() for p in plain.parameters()) + adapter) / 1e6)


def test_bits_per_weight() -> None:
    # 4 + 32/64 = 4.5;  4 + 8/64 + 32/(64 * 256) = 4 + 0.125 + 0.00195 = 4.12695
    assert bits_per_weight(MemoryConfig(quantise="nf4", quantise_scales=False)) == 4.5
    assert bits_per_weight(MemoryConfig(quantise="nf4")) == pytest.approx(4.126953125, abs=1e-12)
    # And that is what is held: the packed bytes and the scales of one layer.
    for scales in (True, False):
        layer = _policy(quantise_scales=scales).model.get_base_model().model.layers[0].mlp.up_proj.base_layer
        state = layer.weight.quant_state
        held = layer.weight.data.numel() + state.absmax.numel() * state.absmax.element_size()
        held += state.state2.absmax.numel() * 4 if scales else 0
        weights = layer.in_features * layer.out_features
        expected = bits_per_weight(MemoryConfig(quantise="nf4", quantise_scales=scales)) / 8 * weights
        assert held == pytest.approx(expected, rel=0.002)


def test_the_adapter_trains_and_the_base_stays() -> None:
    policy = _policy()
    layer = policy.model.get_base_model().model.layers[0].mlp.up_proj.base_layer
    before = plain_weight(layer).clone()
    optimizer = torch.optim.AdamW([p for _, p in trainable_parameters(policy.model)], lr=1e-2)
    losses = []
    for _ in range(6):
        loss = -policy.model(IDS).logits.log_softmax(-1)[0, :-1].gather(1, IDS[0, 1:, None]).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] - 0.3
    assert torch.equal(plain_weight(layer), before)


def test_the_gradient_is_that_of_a_plain_model_with_the_unpacked_weights() -> None:
    policy = _policy()
    _stir(policy)
    unpacked = load_policy(
        ModelConfig(name="tiny", device="cpu"), lora=LoraConfig(rank=4), base=Path.cwd(), seed=1
    )
    _stir(unpacked)
    for (_, own), (_, plain) in zip(
        policy.model.get_base_model().named_modules(),
        unpacked.model.get_base_model().named_modules(),
        strict=True,
    ):
        if is_quantised(own):
            plain.weight.data = plain_weight(own)
    gradients = []
    for each in (policy, unpacked):
        scorer = TokenLogprobs(each.model, longest_tokens=16)
        assert scorer.shared
        scorer([FAMILY], temperature=0.7)[0].sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for _, p in trainable_parameters(each.model)]))
    assert (gradients[0] - gradients[1]).norm() <= 1e-4 * gradients[1].norm()


def test_the_reference_is_the_base_in_4_bit_with_the_adapter_off() -> None:
    policy = _policy()
    with torch.no_grad():
        start = policy.model(IDS).logits
        _stir(policy)
        assert (policy.model(IDS).logits - start).abs().max() > 1e-3
        with reference_weights(policy.model):
            assert torch.equal(policy.model(IDS).logits, start)


@pytest.mark.parametrize("targets", ["all-linear", ("q_proj",)])
def test_what_is_saved_is_a_plain_model_that_computes_the_same(targets: object, tmp_path: Path) -> None:
    policy = _policy(LoraConfig.model_validate({"rank": 4, "target_modules": targets}))
    _stir(policy)
    save_model(policy, tmp_path / "model")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert getattr(loaded.config, "quantization_config", None) is None
    with torch.no_grad():
        own, plain = policy.model(IDS).logits, loaded(IDS).logits
    assert (own - plain).abs().max() < 1e-4
    names = set(merged_weights(policy.model))
    assert names == set(_plain().state_dict())


def test_an_adapter_that_is_not_finite_is_not_merged() -> None:
    policy = _policy()
    next(p for _, p in trainable_parameters(policy.model)).data[0, 0] = float("nan")
    with pytest.raises(CheckpointError, match="not finite"):
        merged_weights(policy.model)


def test_a_critic_of_its_own_starts_from_the_same_weights() -> None:
    policy = _policy()
    scorer = TokenLogprobs(policy.model, longest_tokens=16)
    critic = build_critic(policy, scorer, CriticConfig(), longest_tokens=16)
    assert critic.own is not None
    assert torch.equal(critic.scorer.hidden([FAMILY]), scorer.hidden([FAMILY]))
    critic([FAMILY]).sum().backward()
    copied = copy.deepcopy(policy.model)
    with torch.no_grad():
        assert torch.equal(copied(IDS).logits, policy.model(IDS).logits)


def test_without_the_package_it_is_said_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'groupwise\[quant\]'"):
        load_policy(
            ModelConfig(name="nowhere"),
            lora=LoraConfig(),
            base=Path.cwd(),
            seed=0,
            memory=MemoryConfig(quantise="nf4"),
        )
