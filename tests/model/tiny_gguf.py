"""A tiny Llama written as a quantised .gguf file with the gguf package's own writer, and what it must unpack to."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import torch

from groupwise.model.tiny import build_tiny

_LAYER_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_HEADS = {"attn_q": 4, "attn_k": 2}


def permute(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp pairs neighbouring rows of a head for its rotary positions, Hugging Face those half a head apart."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def unpermute(weight: np.ndarray, heads: int) -> np.ndarray:
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_tiny_gguf(path: Path, *, pre: str = "smollm") -> dict[str, torch.Tensor]:
    """Write the file (Q4_1 layers, Q8_0 embedding, float32 norms, as the embedded model's) and return the weights,
    by their Hugging Face names, that it holds after rounding to blocks."""
    model, tokenizer = build_tiny(3)
    writer = gguf.GGUFWriter(path, "llama")
    config = model.config
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    pieces = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokens = sorted(pieces["vocab"], key=pieces["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(tokens) - 3))
    writer.add_token_merges([" ".join(pair) for pair in pieces["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(tokenizer.chat_template)

    held: dict[str, torch.Tensor] = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":  # tied: the file has none
            continue
        theirs = _their_name(name)
        weight = tensor.numpy()
        kind = gguf.GGMLQuantizationType.F32
        if weight.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0 if "embd" in theirs else gguf.GGMLQuantizationType.Q4_1
        heads = _HEADS.get(theirs.split(".")[-2])
        packed = gguf.quants.quantize(weight if heads is None else permute(weight, heads), kind)
        writer.add_tensor(theirs, packed, raw_dtype=kind)
        plain = gguf.quants.dequantize(packed, kind)
        held[name] = torch.from_numpy(plain if heads is None else unpermute(plain, heads))
    held["lm_head.weight"] = held["model.embed_tokens.weight"]
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return held


def _their_name(name: str) -> str:
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    _, _, layer, *inner, suffix = name.split(".")
    return f"blk.{layer}.{_LAYER_NAMES['.'.join(inner)]}.{suffix}"
