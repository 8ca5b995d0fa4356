"""A tiny language model with a real tokenizer, built on the spot: no download, no wheel of weights.

It knows nothing, but it is a true transformers model: what trains it trains a large one. `groupwise smoke` and the
tests use it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, LlamaConfig, PreTrainedTokenizerFast, Qwen2Config
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from groupwise.model.find import TINY
from groupwise.model.reading import quiet

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

Architecture = Literal["llama", "gpt2", "qwen2"]

__all__ = ["TINY", "Architecture", "build_tiny", "tiny_tokenizer", "write_tiny"]

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")  # ids 0, 1, 2, as in SmolLM2
_WORDS = (
    *("user", "assistant", "system", "What", "Answer", "The", "How", "Give", "Say"),
    *(
        " the",
        " is",
        " of",
        " and",
        " to",
        " in",
        " that",
        " for",
        " with",
        " you",
        " are",
        " word",
        " number",
    ),
    *(" answer", " plus", " times", " reply", " briefly", " one", " two", " three", " hello", " yes", " no"),
)
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of about 400 tokens with the ChatML template.

    The 256 bytes and a few common words are in it, so any text can be encoded and decoded without loss, and words can
    be spelled in more ways than one. Each digit is a token. `<|im_end|>` ends a turn and is the pad token too, and no
    special tokens are added to plain text: as with SmolLM2.
    """
    vocabulary = list(_SPECIAL) + sorted(pre_tokenizers.ByteLevel.alphabet())
    merges: list[tuple[str, str]] = []
    for word in _WORDS:
        letters = word.replace(" ", "Ġ")  # byte-level tokenizers write a space so
        for end in range(2, len(letters) + 1):
            pair = (letters[: end - 1], letters[end - 1])
            if letters[:end] not in vocabulary:
                vocabulary.append(letters[:end])
                merges.append(pair)
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(vocabulary)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in _SPECIAL])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = _CHAT_TEMPLATE
    return wrapped


def build_tiny(
    seed: int = 0,
    *,
    architecture: Architecture = "llama",
    hidden: int = 64,
    layers: int = 2,
    context_tokens: int = 512,
    weight_scale: float = 0.05,
    tied: bool = True,
    dtype: torch.dtype = torch.float32,
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """A causal language model of random weights, and its tokenizer.

    The weights depend on the seed and the shape alone: the global random state is neither read nor changed.

    Args:
        seed: decides the weights.
        architecture: `llama`, `gpt2` (learned positions, biases, fused projections) or `qwen2` (biased projections).
        hidden: width; four attention heads share it.
        layers: transformer layers.
        context_tokens: longest sequence.
        weight_scale: standard deviation of the initial weights; at 0.02 every token is about equally likely.
        tied: the head shares the embedding's weights.
        dtype: of the weights; drawn in float32 and rounded.

    Returns:
        The model on the CPU in evaluation mode, without dropout, and the tokenizer.
    """
    tokenizer = tiny_tokenizer()
    config = _config(
        architecture,
        hidden,
        layers,
        context_tokens,
        vocab_size=len(tokenizer),
        initializer_range=weight_scale,
        tie_word_embeddings=tied,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for parameter in model.parameters():  # `model.to` would round the rotary frequencies as well
        parameter.data = parameter.data.to(dtype)
    return model.eval(), tokenizer


def _config(
    architecture: Architecture, hidden: int, layers: int, context: int, **rest: Any
) -> PreTrainedConfig:
    if architecture == "gpt2":
        return GPT2Config(
            n_embd=hidden,
            n_layer=layers,
            n_head=4,
            n_positions=context,
            attn_pdrop=0.0,
            embd_pdrop=0.0,
            resid_pdrop=0.0,
            **rest,
        )
    kind = {"llama": LlamaConfig, "qwen2": Qwen2Config}[architecture]
    return kind(
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        attention_dropout=0.0,
        **rest,
    )


def write_tiny(folder: Path, seed: int = 0, **shape: Any) -> Path:
    """`build_tiny(seed, **shape)` saved as a Hugging Face folder, which `model.name` can point to; gives the folder."""
    model, tokenizer = build_tiny(seed, **shape)
    with quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder
