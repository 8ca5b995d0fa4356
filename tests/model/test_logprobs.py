import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from groupwise.config.model import LoraConfig
from groupwise.model import attention
from groupwise.model.attention import UnsupportedError
from groupwise.model.head import head_logprobs
from groupwise.model.load import Policy
from groupwise.model.logprobs import TokenLogprobs, plain_logprobs
from groupwise.model.lora import attach, reference_weights
from groupwise.model.shared_prefix import Family
from tests.model.families import gradient_of, one_by_one, random_families, relative
from tests.model.unpackable import UNPACKABLE, build_unpackable

DOUBLE = torch.float64


def written_down(
    hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    logprobs = (hidden @ weight.T / temperature).log_softmax(-1)
    return logprobs.gather(1, targets[:, None])[:, 0], -(logprobs.exp() * logprobs).sum(-1)


def parts(dtype: torch.dtype = DOUBLE) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states [11, 6], the head's weight [19, 6], targets [11]."""
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(11, 6, generator=generator, dtype=DOUBLE)
    weight = torch.randn(19, 6, generator=generator, dtype=DOUBLE)
    targets = torch.randint(0, 19, (11,), generator=generator)
    return hidden.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_(), targets


@pytest.mark.parametrize("rows", [1, 3, 7, 11, 100, None])
@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.0])
def test_against_autograd(temperature: float, rows: int | None) -> None:
    hidden, weight, targets = parts()
    outputs = head_logprobs(hidden, weight, targets, temperature=temperature, rows=rows)
    expected = written_down(hidden, weight, targets, temperature)
    for output, right in zip(outputs, expected, strict=True):
        assert (output - right).abs().max() < 1e-12
    generator = torch.Generator().manual_seed(4)
    both = torch.randn(2, 11, generator=generator, dtype=DOUBLE)
    both[:, 2] = 0  # a token that teaches nothing, in the middle of a chunk
    both[0, 5] = both[1, 6] = 0  # one with an entropy term alone, one with a log-prob alone
    nothing = torch.zeros(11, dtype=DOUBLE)
    for upstream in (both, torch.stack([both[0], nothing]), torch.stack([nothing, both[1]])):
        ours = torch.autograd.grad(outputs, (hidden, weight), tuple(upstream), retain_graph=True)
        right = torch.autograd.grad(expected, (hidden, weight), tuple(upstream), retain_graph=True)
        for a, b in zip(ours, right, strict=True):
            assert (a - b).abs().max() < 1e-12


def test_entropy_of_known_logits() -> None:
    # Logits 2, 1, 0, 0 at T = 1: Z = e^2 + e + 2 = 12.1073; p = 0.6103, 0.2245, 0.0826, 0.0826;
    # H = ln Z - sum p l = 2.4938 - (1.2206 + 0.2245) = 1.0487. T = 0.6 and 2 by the same formula.
    logits = torch.tensor([[2.0, 1.0, 0.0, 0.0]])
    for temperature, entropy in ((1.0, 1.0487), (0.6, 0.6698), (2.0, 1.2947)):
        logprob, found = head_logprobs(logits, torch.eye(4), torch.tensor([0]), temperature=temperature)
        assert found.item() == pytest.approx(entropy, abs=5e-5)
        z = math.exp(2 / temperature) + math.exp(1 / temperature) + 2
        assert logprob.item() == pytest.approx(2 / temperature - math.log(z), abs=1e-6)


def test_no_gradient_gives_exactly_none() -> None:
    hidden, weight, targets = parts()
    logprobs, entropy = head_logprobs(hidden, weight, targets, temperature=1.0)
    (0.0 * logprobs.sum() + 0.0 * entropy.sum()).backward()
    assert torch.count_nonzero(hidden.grad) == torch.count_nonzero(weight.grad) == 0


def test_a_gradient_of_nan_is_not_lost() -> None:
    hidden, weight, targets = parts()
    logprobs, _ = head_logprobs(hidden, weight, targets, temperature=1.0)
    logprobs.backward(torch.tensor([math.nan] + [0.0] * 10, dtype=DOUBLE))
    assert hidden.grad[0].isnan().all()
    assert torch.count_nonzero(hidden.grad[1:]) == 0


def test_a_frozen_head_or_frozen_states() -> None:
    hidden, weight, targets = parts()
    both = torch.autograd.grad(
        head_logprobs(hidden, weight, targets, temperature=0.7, rows=4)[0].sum(), (hidden, weight)
    )
    frozen_weight = head_logprobs(hidden, weight.detach(), targets, temperature=0.7, rows=4)[0]
    frozen_hidden = head_logprobs(hidden.detach(), weight, targets, temperature=0.7, rows=4)[0]
    assert torch.equal(torch.autograd.grad(frozen_weight.sum(), hidden)[0], both[0])
    assert torch.equal(torch.autograd.grad(frozen_hidden.sum(), weight)[0], both[1])


def test_bfloat16_states_give_float32_logprobs() -> None:
    hidden, weight, targets = parts(torch.bfloat16)
    logprobs, entropy = head_logprobs(hidden, weight, targets, temperature=1.0)
    assert logprobs.dtype == entropy.dtype == torch.float32
    logits = (hidden @ weight.T).float()
    right = logits.log_softmax(-1)
    assert (logprobs - right.gather(1, targets[:, None])[:, 0]).abs().max() < 1e-5
    assert (entropy + (right.exp() * right).sum(-1)).abs().max() < 1e-5
    logprobs.sum().backward()
    assert hidden.grad.dtype == weight.grad.dtype == torch.bfloat16


def test_large_logits_stay_finite() -> None:
    hidden = torch.tensor([[1e4, 0.0, -1e4]], requires_grad=True)
    logprob, entropy = head_logprobs(hidden, torch.eye(3), torch.tensor([2]), temperature=1.0)
    (logprob + entropy).sum().backward()
    assert logprob.item() == pytest.approx(-2e4)
    assert entropy.item() == 0.0
    assert hidden.grad.tolist() == [[-1.0, 0.0, 1.0]]


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt2"])
def test_padding_changes_nothing_on_the_plain_path(
    build_policy: Callable[..., Policy], architecture: str
) -> None:
    model = build_policy(architecture=architecture, dtype=DOUBLE).model
    families = random_families()
    for found, right in zip(
        plain_logprobs(model, families, temperature=0.7),
        one_by_one(model, families, temperature=0.7),
        strict=True,
    ):
        assert (found - right).abs().max() < 1e-12


@pytest.mark.parametrize("name", UNPACKABLE)
def test_models_that_cannot_be_packed(name: str) -> None:
    """The notice says why, the model keeps its own attention, and its log-probs are those of the model as it came."""
    model, families = build_unpackable(name), random_families(vocabulary=97)
    own = model.config._attn_implementation
    with torch.no_grad():
        right = one_by_one(model, families, temperature=0.7)  # before anything has touched the model
        scorer = TokenLogprobs(model, longest_tokens=20)
        found = scorer(families, temperature=0.7)
    assert not scorer.shared
    assert UNPACKABLE[name].notice in str(scorer.notice)
    assert model.config._attn_implementation == own
    for a, b in zip(found, right, strict=True):
        assert (a - b).abs().max() < 1e-4


def test_soft_caps_and_sinks_matter_in_these_tests() -> None:
    """What SDPA would leave out is large enough here to be missed."""
    for name, without in (("gemma2", {"attn_logit_softcapping": None}), ("gpt_oss", None)):
        model, families = build_unpackable(name), random_families(vocabulary=97)
        with torch.no_grad():
            right, _ = one_by_one(model, families, temperature=1.0)
            if without is None:
                for layer in model.model.layers:
                    layer.self_attn.sinks.fill_(-1e9)
            else:
                for layer in model.model.layers:
                    layer.self_attn.attn_logit_softcapping = None
            wrong, _ = one_by_one(model, families, temperature=1.0)
        assert (right - wrong).abs().max() > 1e-2


def test_a_head_with_a_bias_takes_the_plain_path() -> None:
    config = transformers.PhiConfig(
        vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4
    )
    scorer = TokenLogprobs(transformers.PhiForCausalLM(config).eval(), longest_tokens=20)
    assert scorer.notice == "its head is not a plain linear layer"


def test_layers_under_another_name_than_the_model_states() -> None:
    """Llama 4's text model calls them `model` and says `language_model`."""
    config = transformers.Llama4TextConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=64,
        intermediate_size_mlp=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_local_experts=4,
        attention_chunk_size=8,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, families = transformers.Llama4ForCausalLM(config).eval(), random_families(vocabulary=97)
    with torch.no_grad():
        right, _ = one_by_one(model, families, temperature=0.7)
        found, _ = TokenLogprobs(model, longest_tokens=20)(families, temperature=0.7)
    assert (found - right).abs().max() < 1e-4


def test_sharing_can_be_switched_off(policy: Policy) -> None:
    own = policy.model.config._attn_implementation
    scorer = TokenLogprobs(policy.model, longest_tokens=20, share_prefix=False)
    assert (scorer.shared, scorer.notice) == (False, "share_prefix is off")
    assert policy.model.config._attn_implementation == own


def mistral(window: int) -> Any:
    return transformers.MistralForCausalLM(
        transformers.MistralConfig(
            vocab_size=97,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            sliding_window=window,
        )
    ).eval()


def test_the_window_is_measured_against_the_longest_sequence_to_come() -> None:
    assert TokenLogprobs(mistral(32), longest_tokens=32).shared
    scorer = TokenLogprobs(mistral(32), longest_tokens=33)
    assert scorer.notice == "its attention slides over 32 tokens"
    # A sequence longer than promised is an error, never a wrong number.
    scorer = TokenLogprobs(mistral(16), longest_tokens=16)
    with pytest.raises(UnsupportedError, match="slides over 16"):
        scorer(random_families([(12, (8,))], vocabulary=97), temperature=1.0)


def test_the_probe_leaves_no_trace(policy: Policy) -> None:
    state = torch.random.get_rng_state()
    numpy_state = np.random.get_state()[1].copy()
    weights = {name: p.clone() for name, p in policy.model.named_parameters()}
    for training in (True, False):
        policy.model.train(training)
        assert TokenLogprobs(policy.model, longest_tokens=64).shared
        assert policy.model.training is training
    assert torch.equal(state, torch.random.get_rng_state())
    assert (numpy_state == np.random.get_state()[1]).all()
    for name, parameter in policy.model.named_parameters():
        assert torch.equal(parameter, weights[name])
        assert parameter.grad is None


def test_a_saved_model_does_not_ask_for_our_attention(policy: Policy) -> None:
    TokenLogprobs(policy.model, longest_tokens=64)
    assert policy.model.config._attn_implementation == attention.NAME
    assert attention.NAME not in policy.model.config.to_json_string()


def test_an_adapter(policy: Policy) -> None:
    adapted = attach(policy.model, LoraConfig(rank=4), seed=0).eval()
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1, generator=torch.Generator().manual_seed(1))
    families = random_families()
    right = one_by_one(adapted, families, temperature=0.7)
    expected = gradient_of(adapted, *right)
    scorer = TokenLogprobs(adapted, longest_tokens=64)
    assert scorer.shared
    found = scorer(families, temperature=0.7)
    assert (found[0] - right[0]).abs().max() < 1e-4
    assert relative(gradient_of(adapted, *found), expected) < 1e-4
    assert {n for n, p in adapted.named_parameters() if p.grad is not None} == {
        n for n, _ in adapted.named_parameters() if "lora_" in n
    }
    with torch.no_grad(), reference_weights(adapted):
        base = scorer(families, temperature=0.7)[0]
        assert (base - plain_logprobs(adapted, families, temperature=0.7)[0]).abs().max() < 1e-4
    assert (base - found[0]).abs().max() > 1e-2


def test_bfloat16_weights_share_their_prompts(build_policy: Callable[..., Policy]) -> None:
    policy = build_policy(dtype=torch.bfloat16, weight_scale=0.05)
    scorer, families = TokenLogprobs(policy.model, longest_tokens=64), random_families()
    assert scorer.shared, scorer.notice
    with torch.no_grad():
        found, _ = scorer(families, temperature=1.0)
        right, _ = plain_logprobs(policy.model, families, temperature=1.0)
    assert found.dtype == torch.float32
    assert (found - right).abs().max() < 0.05


def test_one_response_alone() -> None:
    family = Family(prompt_ids=np.array([1], dtype=np.int32), responses=[np.array([2], dtype=np.int32)])
    model = mistral(32)
    with torch.no_grad():
        found, entropy = TokenLogprobs(model, longest_tokens=2)([family], temperature=1.0)
        logits = model(input_ids=torch.tensor([[1]])).logits[0, 0]
    assert found.item() == pytest.approx(logits.log_softmax(0)[2].item(), abs=1e-5)
    assert entropy.shape == (1,)
