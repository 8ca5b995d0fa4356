"""Tiny models whose layers cannot take packed tokens, each for a reason of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import transformers

_ATTENTION = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


@dataclass(frozen=True, slots=True)
class Unpackable:
    architecture: str
    notice: str
    """Part of the reason given."""
    settings: dict[str, Any] = field(default_factory=dict)


UNPACKABLE = {
    "mistral": Unpackable(
        "Mistral", "its attention slides over 6 tokens", {**_ATTENTION, "sliding_window": 6}
    ),
    "gemma2": Unpackable(
        "Gemma2",
        "its attention uses softcap",
        {
            **_ATTENTION,
            "head_dim": 8,
            "attn_logit_softcapping": 0.5,
            "query_pre_attn_scalar": 8,
            "final_logit_softcapping": None,
        },
    ),
    "gpt_oss": Unpackable(
        "GptOss", "its attention uses s_aux", {**_ATTENTION, "head_dim": 8, "num_local_experts": 4}
    ),
    "diff_llama": Unpackable("DiffLlama", "its layer 0 attends more than once", _ATTENTION),
    "granite": Unpackable(
        "Granite", "its head does more than one product", {**_ATTENTION, "logits_scaling": 4.0}
    ),
    "bloom": Unpackable(
        "Bloom",
        "its attention cannot be replaced",
        {"vocab_size": 97, "hidden_size": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.2},
    ),
    # Short convolutions between attention layers; its cache holds states that cannot be repeated for a group.
    "lfm2": Unpackable(
        "Lfm2",
        "packed tokens change its log-probs by",
        {**_ATTENTION, "layer_types": ["conv", "full_attention"]},
    ),
    # Its first layer is recurrent, so that its cache does not say how many tokens are in it.
    "bamba": Unpackable(
        "Bamba",
        "packed tokens change its log-probs by",
        {
            **_ATTENTION,
            "attn_layer_indices": [1],
            "mamba_n_heads": 8,
            "mamba_d_head": 8,
            "mamba_d_state": 16,
            "mamba_n_groups": 1,
        },
    ),
    # Every layer holds keys and values and a recurrent state; transformers repeats the first alone.
    "falcon_h1": Unpackable(
        "FalconH1",
        "packed tokens change its log-probs by",
        {
            **_ATTENTION,
            "head_dim": 8,
            "mamba_n_heads": 8,
            "mamba_d_head": 8,
            "mamba_d_ssm": 64,
            "mamba_d_state": 16,
            "mamba_n_groups": 1,
        },
    ),
    "minimax": Unpackable(
        "MiniMax",
        "packed tokens",
        {
            **_ATTENTION,
            "head_dim": 8,
            "layer_types": ["linear_attention", "full_attention"],
            "block_size": 4,
            "num_local_experts": 4,
        },
    ),
    "mamba": Unpackable(
        "Mamba",
        "packed tokens",
        {
            "vocab_size": 97,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "initializer_range": 0.2,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
        },
    ),
}
"""Vocabularies of 97 tokens."""


def build_unpackable(name: str) -> Any:
    """The model in evaluation mode, the same weights at every call."""
    what = UNPACKABLE[name]
    config = getattr(transformers, f"{what.architecture}Config")(**what.settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return getattr(transformers, f"{what.architecture}ForCausalLM")(config).eval()
