"""Layers in a loop against the models' own code, and models that the loop does not compute."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import peft
import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRMSNorm

from groupwise.config.model import LoraConfig
from groupwise.model import straight
from groupwise.model.attention import NAME
from groupwise.model.gated import faster_gates
from groupwise.model.load import Policy
from groupwise.model.logprobs import plain_logprobs
from groupwise.model.lora import attach
from groupwise.model.norms import faster_norms
from groupwise.model.sampling_weights import can_pack
from groupwise.model.straight import Straight, fits
from groupwise.records import Rollout
from groupwise.rollouts.engine import Sampling
from tests.rollouts.examples import engine_of, families_of, random_prompts, token_ids

SIZES: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
LOOPS = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "llama with biases": lambda: transformers.LlamaConfig(**SIZES, attention_bias=True, head_dim=12),
    "llama 3's rotations": lambda: transformers.LlamaConfig(
        **SIZES,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    ),
    "mistral": lambda: transformers.MistralConfig(**SIZES, sliding_window=None),
    "qwen2": lambda: transformers.Qwen2Config(**SIZES),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES, head_dim=16),
}
OTHERS = {
    "gemma": lambda: transformers.GemmaConfig(**SIZES, head_dim=8),  # its norms multiply by 1 + weight
    "granite": lambda: transformers.GraniteConfig(**SIZES, residual_multiplier=0.5),
    "granite's embedding": lambda: transformers.GraniteConfig(**SIZES, embedding_multiplier=3.0),
    "helium": lambda: transformers.HeliumConfig(**SIZES, head_dim=8),  # turns neighbours
    "olmo2": lambda: transformers.Olmo2Config(**SIZES),  # norms behind attention
    "smollm3": lambda: transformers.SmolLM3Config(**SIZES, no_rope_layers=[1, 0, 1], pad_token_id=0),
    "phi3": lambda: transformers.Phi3Config(**SIZES, pad_token_id=0),  # fused projections
    "gpt2": lambda: transformers.GPT2Config(vocab_size=60, n_embd=32, n_head=4, n_layer=2),
}


def model_of(config: Any) -> Any:
    """With random numbers in every parameter, biases and norms too."""
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    fill(model.parameters())
    return model


@torch.no_grad()
def fill(parameters: Iterable[nn.Parameter], scale: float = 1.0) -> None:
    draw = torch.Generator().manual_seed(1)
    for parameter in parameters:
        numbers = scale * torch.randn(parameter.shape, generator=draw)
        parameter.copy_(
            0.5 + 0.3 * numbers if parameter.dim() == 1 else numbers * parameter.shape[-1] ** -0.5
        )


def prepared(model: Any) -> Any:
    """The backbone as `TokenLogprobs` makes it before it asks."""
    model.set_attn_implementation(NAME)
    faster_norms(model)
    faster_gates(model)
    return model.base_model


@pytest.mark.parametrize("name", LOOPS)
def test_it_computes_what_the_model_computes(name: str) -> None:
    backbone = prepared(model_of(LOOPS[name]()))
    assert fits(backbone, 128)


def test_hand_worked() -> None:
    norm = LlamaRMSNorm(2, eps=0.5)
    norm.weight.data = torch.tensor([2.0, 1.0])
    # The mean of 9 and 16 is 12.5, and with eps 13: 2 * 3 / sqrt(13) and 4 / sqrt(13).
    right = torch.tensor([[6.0, 4.0]]) / 13**0.5
    torch.testing.assert_close(straight._Norm(norm)(torch.tensor([[3.0, 4.0]])), right)

    class Layout:
        def attend(self, index: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
            return torch.cat([query, key, value]).transpose(0, 1)  # all that it is handed, side by side

    layer = SimpleNamespace(head_size=2, sizes=[2, 2, 2], of_heads=None, scaling=1.0)
    qkv = torch.tensor([[3.0, 4.0, 5.0, 6.0, 7.0, 8.0]])
    # By the angle of cosine 0.6 and sine 0.8: 3 * 0.6 - 4 * 0.8 = -1.4 and 4 * 0.6 + 3 * 0.8 = 4.8 of the query,
    # 5 * 0.6 - 6 * 0.8 = -1.8 and 6 * 0.6 + 5 * 0.8 = 7.6 of the key; values stay.
    cos, sin = torch.tensor([[[0.6, 0.6]]]), torch.tensor([[[-0.8, 0.8]]])
    found = straight._attend(0, layer, qkv, cos, sin, Layout())  # type: ignore[arg-type]
    torch.testing.assert_close(found, torch.tensor([[-1.4, 4.8, -1.8, 7.6, 7.0, 8.0]]))


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_run_by_themselves(name: str) -> None:
    model = model_of(OTHERS[name]())
    assert not fits(prepared(model), 128)


class ScaledFarOut(LlamaAttention):
    """Queries grow behind position 100, as Llama 4's do far out; the children are Llama's."""

    def forward(self, hidden_states: Tensor, *args: Any, position_ids: Tensor, **kwargs: Any) -> Any:
        far = 1.0 + 0.1 * (position_ids > 100)[..., None]
        return super().forward(hidden_states * far, *args, position_ids=position_ids, **kwargs)


class WithSink(LlamaAttention):
    """Has a parameter of its own, which happens to be 0."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.sinks = nn.Parameter(torch.zeros(4))


@pytest.mark.parametrize("kind", [ScaledFarOut, WithSink])
def test_attention_with_llamas_children_that_does_more(kind: type[LlamaAttention]) -> None:
    model = model_of(LOOPS["llama"]())
    for index, layer in enumerate(model.model.layers):
        other = kind(model.config, index)
        other.load_state_dict(layer.self_attn.state_dict(), strict=False)
        layer.self_attn = other
    backbone = prepared(model)
    assert not fits(backbone, 128)
    if kind is ScaledFarOut:
        assert fits(backbone, 90), "up to where it makes no difference"


@pytest.mark.skipif(not can_pack(torch.float32), reason="this build of torch has no prepacked linear layers")
@pytest.mark.parametrize("lora", [None, {"rank": 4}, {"rank": 4, "target_modules": ("k_proj", "up_proj")}])
@pytest.mark.parametrize("name", LOOPS)
def test_what_is_sampled_is_the_same(
    policy: Policy, name: str, lora: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ragged prompts behind a stem, responses that part and end, an adapter that has learned something."""
    model = model_of(LOOPS[name]())
    if lora is not None:
        model = attach(model, LoraConfig(**lora), seed=0).eval()
        fill((parameter for parameter in model.parameters() if parameter.requires_grad), scale=0.3)
    engine = engine_of(replace(policy, model=model, stop_token_ids=(5, 6), context_tokens=128))
    weights, inner, calls = engine.scorer.sampling_weights, Straight.__call__, []

    def counted(self: Straight, *given: Any) -> Tensor:
        calls.append(1)
        return inner(self, *given)

    monkeypatch.setattr(Straight, "__call__", counted)

    def sampled() -> list[list[Rollout]]:
        calls.clear()
        prompts = random_prompts([3, 9, 1], vocabulary=60, stem=10)
        return engine.generate(prompts, Sampling(max_new_tokens=20, temperature=0.7), group_size=6, seed=(0,))

    by_loop = sampled()
    assert len(calls) > 10
    assert weights.straight is None, "only while sampling"
    weights.let_go()
    weights.backbone = None
    by_model = sampled()
    assert not calls
    assert token_ids(by_loop) == token_ids(by_model)
    assert len({len(rollout.token_ids_T) for rollouts in by_loop for rollout in rollouts}) > 2
    for mine, right in zip(itertools.chain(*by_loop), itertools.chain(*by_model), strict=True):
        np.testing.assert_allclose(mine.sampler_logprobs_T, right.sampler_logprobs_T, rtol=0, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize("kind", ["dora", "bias", "off"])
def test_an_adapter_that_cannot_be_merged(policy: Policy, kind: str) -> None:
    model = model_of(LOOPS["llama with biases"]())
    config = peft.LoraConfig(
        r=4, target_modules=["q_proj", "k_proj"], use_dora=kind == "dora", lora_bias=kind == "bias"
    )
    model = peft.get_peft_model(model, config).eval()
    fill((parameter for parameter in model.parameters() if parameter.requires_grad), scale=0.3)
    engine = engine_of(replace(policy, model=model, stop_token_ids=(5,), context_tokens=128))
    prompts = random_prompts([3, 9], vocabulary=60)
    off = model.disable_adapter() if kind == "off" else nullcontext()
    with off, torch.no_grad():
        rollouts = engine.generate(prompts, Sampling(max_new_tokens=12), group_size=3, seed=(0,))
        right_M, _ = plain_logprobs(model, families_of(prompts, rollouts), temperature=1.0)
    found = [rollout.sampler_logprobs_T for rollout in itertools.chain(*rollouts)]
    assert np.abs(np.concatenate(found) - right_M.numpy()).max() < 1e-4


def test_other_precisions_and_layouts_are_not_its_business(policy: Policy) -> None:
    weights = engine_of(policy).scorer.sampling_weights
    assert weights.backbone is not None
    for settings in ({"rows": None}, {"rows": 4, "precision": torch.bfloat16}):
        with weights.laid_out(**settings):  # type: ignore[arg-type]
            assert weights.straight is None
    with torch.no_grad():
        policy.model.model.layers[1].mlp.up_proj.double()
    with weights.laid_out(rows=4):
        assert weights.straight is None
