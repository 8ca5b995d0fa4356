"""Writing a model as one .gguf file, the format of llama.cpp.

The layout is what llama.cpp reads for the architectures `llama` (SmolLM2 and its kin) and `qwen2`, with byte-level BPE
tokenizers whose way of splitting text has a name there. For all others llama.cpp's own convert_hf_to_gguf.py takes the
Hugging Face folder.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from groupwise.errors import CheckpointError, ModelError

if TYPE_CHECKING:
    from groupwise.model.load import Policy

Precision = Literal["f32", "f16"]

_ELSEWHERE = "save a folder instead, and give it to llama.cpp's convert_hf_to_gguf.py"
_GPT2_SPLIT = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def write_gguf(policy: Policy, file: Path, *, precision: Precision = "f16") -> None:
    """Write weights, tokenizer and chat template into one file, all or nothing; an adapter is merged in.

    Args:
        policy: the model and its tokenizer.
        file: to write; one that is there is replaced when the new one is whole.
        precision: of matrices; vectors are float32 always. float16 rounds to 11 bits and overflows above 65,504.

    Raises:
        ModelError: the package gguf is missing, the model or its tokenizer has no place in the format as it is known
            here, or a weight is not finite in the precision; names the remedy.
        CheckpointError: the file cannot be written.
    """
    if importlib.util.find_spec("gguf") is None:
        raise ModelError("writing a .gguf file needs the package gguf: pip install 'groupwise[demo]'")
    import gguf

    model: Any = policy.model
    weights, config = _weights(model, policy.lora)
    _refuse(config, policy.name)
    pre = _splitting(policy)
    beside = file.with_name(f".{file.name}.partial")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        writer = gguf.GGUFWriter(str(beside), config.model_type)
        _describe(writer, config, policy.name, precision)
        _add_tokenizer(writer, policy, pre)
        names = gguf.get_tensor_name_map(
            {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2}[config.model_type],
            config.num_hidden_layers,
        )
        for name, tensor in weights.items():
            target = names.get_name(name, try_suffixes=(".weight", ".bias"))
            if target is None:
                raise ModelError(
                    f"{policy.name} has the weight {name}, which .gguf files have no name for; {_ELSEWHERE}"
                )
            array = _as_array(_laid_out(name, tensor, config), precision)
            if not np.isfinite(array).all():
                wide = " in float16; take --precision f32" if bool(tensor.isfinite().all()) else ""
                raise ModelError(f"{policy.name} has the weight {name} with values that are not finite{wide}")
            writer.add_tensor(target, array)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        beside.replace(file)
    except OSError as error:
        raise CheckpointError(
            f"{file} cannot be written: {error.strerror or error}; free some space or name another file"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()


def _weights(model: Any, lora: bool) -> tuple[dict[str, torch.Tensor], Any]:
    """The weights by their names in a Hugging Face folder, a tied head left out, and the configuration."""
    if lora:
        from groupwise.model.lora import merged_weights

        weights, config = merged_weights(model), model.get_base_model().config
    else:
        weights, config = model.state_dict(), model.config
    if config.tie_word_embeddings:
        weights = {name: tensor for name, tensor in weights.items() if name != "lm_head.weight"}
    return weights, config


def _refuse(config: Any, name: str) -> None:
    if config.model_type not in ("llama", "qwen2"):
        raise ModelError(
            f"{name} is of the architecture {config.model_type}; here .gguf files are written of llama and qwen2; "
            f"{_ELSEWHERE}"
        )
    if _rope(config).get("rope_type", "default") != "default":
        raise ModelError(f"{name} scales its rotary positions, which is not written here; {_ELSEWHERE}")
    if config.model_type == "llama" and (config.attention_bias or config.mlp_bias):
        raise ModelError(f"{name} has biases, which llama in .gguf files has not; {_ELSEWHERE}")


def _rope(config: Any) -> dict[str, Any]:
    return dict(getattr(config, "rope_parameters", None) or {})


def _describe(writer: Any, config: Any, name: str, precision: Precision) -> None:
    import gguf

    heads = config.num_attention_heads
    writer.add_name(Path(name).name)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(_rope(config).get("rope_theta", 10_000.0))
    writer.add_rope_dimension_count(getattr(config, "head_dim", None) or config.hidden_size // heads)
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32 if precision == "f32" else gguf.LlamaFileType.MOSTLY_F16)


def _splitting(policy: Policy) -> str:
    """llama.cpp's name for how the tokenizer cuts text before it merges bytes."""
    tokenizer = json.loads(policy.tokenizer.backend_tokenizer.to_str())
    split, kind = tokenizer["pre_tokenizer"], tokenizer["model"]["type"]
    parts = split.get("pretokenizers", [split]) if split else []
    digits = {"type": "Digits", "individual_digits": True}
    by_pattern = {
        "type": "Split",
        "pattern": {"Regex": _QWEN2_PATTERN},
        "behavior": "Isolated",
        "invert": False,
    }
    if kind == "BPE" and tokenizer["normalizer"] is None and parts == [_GPT2_SPLIT]:
        return "gpt-2"
    if kind == "BPE" and tokenizer["normalizer"] is None and parts == [digits, _GPT2_SPLIT]:
        return "smollm"
    if kind == "BPE" and len(parts) == 2 and parts[0] == by_pattern and not parts[1].get("use_regex", True):
        return "qwen2"
    raise ModelError(
        f"the tokenizer of {policy.name} cuts text in a way that has no name here, so llama.cpp would read other "
        f"tokens; {_ELSEWHERE}"
    )


def _add_tokenizer(writer: Any, policy: Policy, pre: str) -> None:
    import gguf

    tokenizer: Any = policy.tokenizer
    data = json.loads(tokenizer.backend_tokenizer.to_str())
    size = policy.model.config.vocab_size
    added = {entry["id"]: entry for entry in data["added_tokens"]}
    vocabulary = {index: token for token, index in tokenizer.get_vocab().items()}
    tokens, types = [], []
    for index in range(size):
        # Weights may have more rows than there are tokens; each needs a name of its own.
        tokens.append(vocabulary.get(index, f"[unused{index}]"))
        kind = gguf.TokenType.NORMAL if index in vocabulary else gguf.TokenType.UNUSED
        if index in added:
            kind = gguf.TokenType.CONTROL if added[index]["special"] else gguf.TokenType.USER_DEFINED
        types.append(kind)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(
        [pair if isinstance(pair, str) else " ".join(pair) for pair in data["model"]["merges"]]
    )
    for name, token in (
        ("bos", tokenizer.bos_token_id),
        ("eos", tokenizer.eos_token_id),
        ("pad", tokenizer.pad_token_id),
        ("unk", tokenizer.unk_token_id),
    ):
        if token is not None:
            getattr(writer, f"add_{name}_token_id")(token)
    probe = tokenizer("a")["input_ids"]
    writer.add_add_bos_token(bool(probe) and probe[0] == tokenizer.bos_token_id)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


def _laid_out(name: str, tensor: torch.Tensor, config: Any) -> torch.Tensor:
    """A weight as llama.cpp keeps it: of llama it turns pairs of neighbours, where transformers turns halves."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    projection = name.rpartition(".")[0].rpartition(".")[2]
    if config.model_type != "llama" or projection not in heads:
        return tensor
    count = heads[projection]
    half = tensor.shape[0] // count // 2
    return tensor.reshape(count, 2, half, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)


def _as_array(tensor: torch.Tensor, precision: Precision) -> np.ndarray[Any, Any]:
    dtype = torch.float16 if precision == "f16" and tensor.dim() > 1 else torch.float32
    return tensor.detach().to("cpu", dtype).contiguous().numpy()
