import math
from collections.abc import Callable

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from groupwise.model import attention
from groupwise.model.attention import UnsupportedError, causal, fold_heads, run_packed
from groupwise.model.load import Policy
from groupwise.model.shared_prefix import PackedFamilies
from tests.model.families import random_families


def test_causal_by_hand() -> None:
    # One key head serves two query heads. Keys 0 and ln 3, values 1 and 5, queries 1 (head a) and 2 (head b).
    # Token 0 sees itself alone: 1. Token 1, head a: scores 0 and ln 3, weights 1/4 and 3/4: 0.25 + 3.75 = 4.
    # Head b: scores 0 and ln 9, weights 0.1 and 0.9: 0.1 + 4.5 = 4.6.
    query = torch.tensor([[[1.0], [1.0]], [[2.0], [2.0]]], dtype=torch.float64)
    key = torch.tensor([[[0.0], [math.log(3)]]], dtype=torch.float64)
    value = torch.tensor([[[1.0], [5.0]]], dtype=torch.float64)
    out = causal(query, key, value, 1.0)
    assert out.flatten().tolist() == pytest.approx([1.0, 4.0, 1.0, 4.6], abs=1e-12)
    # Half the scale: head b then has head a's scores.
    assert causal(query, key, value, 0.5)[1, 1].item() == pytest.approx(4.0, abs=1e-12)


def test_fold_heads_puts_the_queries_of_a_key_head_together() -> None:
    query = torch.tensor([[[10.0 * head + token] for token in range(3)] for head in range(4)])
    folded = fold_heads(query, 2)
    assert folded.squeeze(-1).tolist() == [[0, 1, 2, 10, 11, 12], [20, 21, 22, 30, 31, 32]]


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt2"])
def test_called_plainly_it_is_sdpa(build_policy: Callable[..., Policy], architecture: str) -> None:
    model = build_policy(architecture=architecture).model
    ids = torch.arange(3, 21).reshape(2, 9)
    mask = torch.tensor([[1] * 9, [1] * 5 + [0] * 4])
    with torch.no_grad():
        before = model(input_ids=ids, attention_mask=mask).logits
        model.set_attn_implementation(attention.NAME)
        after = model(input_ids=ids, attention_mask=mask).logits
    assert torch.equal(before, after)


class _Untouched:
    """A layout that must not be reached."""

    def __init__(self, longest_tokens: int) -> None:
        self.longest_tokens = longest_tokens

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
    ) -> torch.Tensor:
        raise AssertionError("attention went on")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"softcap": 30.0}, "softcap"),
        ({"s_aux": torch.zeros(2)}, "s_aux"),
        ({"position_bias": torch.zeros(2)}, "position_bias"),
        ({"sliding_window": 9}, "slides over 9 tokens"),
        ({"dropout": 0.1}, "drops out"),
    ],
)
def test_what_packing_does_not_do_is_refused(settings: dict[str, object], reason: str) -> None:
    x = torch.zeros(1, 2, 10, 4)
    with pytest.raises(UnsupportedError, match=reason):
        attention._attention(torch.nn.Module(), x, x, x, None, groupwise=_Untouched(10), **settings)


def test_batches_and_caches_are_refused() -> None:
    x = torch.zeros(2, 2, 10, 4)
    with pytest.raises(UnsupportedError, match="reshapes"):
        attention._attention(torch.nn.Module(), x, x, x, None, groupwise=_Untouched(10))
    with pytest.raises(UnsupportedError, match="reshapes"):
        attention._attention(torch.nn.Module(), x[:1, :, :1], x[:1], x[:1], None, groupwise=_Untouched(10))


def test_a_window_as_long_as_the_sequence_hides_nothing() -> None:
    config = MistralConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=8,
    )
    model = MistralForCausalLM(config).eval()
    model.set_attn_implementation(attention.NAME)
    # The last token of a response is an input to nothing: 5 + 4 tokens are 8 positions, 5 + 5 are 9.
    fits, over = (random_families([(5, (k,))], vocabulary=97) for k in (4, 5))
    for families in (fits, over):
        packed = PackedFamilies(families, torch.device("cpu"), torch.float32)
        if families is over:
            with pytest.raises(UnsupportedError, match="slides over 8 tokens"):
                run_packed(model.model, packed.token_ids_S, packed.positions_S, packed)
            continue
        with torch.no_grad():
            hidden = run_packed(model.model, packed.token_ids_S, packed.positions_S, packed)
            plain = model.model(input_ids=packed.token_ids_S[None], use_cache=False).last_hidden_state[0]
        assert (hidden - plain).abs().max() < 1e-5
