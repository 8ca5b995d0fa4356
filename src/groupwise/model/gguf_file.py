"""Reading a .gguf file, the format of llama.cpp, into plain weights that can be trained.

transformers unpacks the blocks, but leaves a model that is marked as quantised and so can be neither trained nor
saved. What comes out of here carries no such mark.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import mmap
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import transformers
from tokenizers import pre_tokenizers
from transformers.models.auto.modeling_auto import AutoModelForCausalLM
from transformers.models.auto.tokenization_auto import AutoTokenizer

from groupwise.errors import ModelError
from groupwise.model.reading import reading

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


def read_gguf(path: Path) -> tuple[type[PreTrainedModel], PreTrainedConfig, dict[str, Tensor]]:
    """The model's class, its configuration and its weights in float32, exactly as the file's blocks unpack.

    The weights go into a model with `model_class.from_pretrained(None, config=config, state_dict=weights)`. Tied
    weights are listed under both names and share their memory.

    Raises:
        ModelError: the `gguf` package is missing, or the file is damaged or of an architecture that transformers
            does not read.
    """
    _need_gguf()
    # Without this, releases that can compute on packed blocks would keep them packed.
    unpack = (
        {"quantization_config": transformers.GgufConfig(dequantize=True)}
        if hasattr(transformers, "GgufConfig")
        else {}
    )
    with reading(f"the model {path}"), contextlib.redirect_stderr(io.StringIO()):  # a bar that has no switch
        loaded = AutoModelForCausalLM.from_pretrained(
            str(path.parent), gguf_file=path.name, dtype=torch.float32, **unpack
        )
    config = copy.deepcopy(loaded.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    return type(loaded), config, loaded.state_dict()


def read_gguf_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """The tokenizer and the chat template that a .gguf file holds.

    A file that declares the pre-tokenizer `smollm` means digits to be split one by one before anything else (as
    llama.cpp and the model's own tokenizer.json do); transformers leaves that out, which changes how blanks before a
    number are encoded, so it is put in here.

    Raises:
        ModelError: the `gguf` package is missing, or the file is damaged.
    """
    _need_gguf()
    with reading(f"the tokenizer of {path}"):
        tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
        if _text_field(path, "tokenizer.ggml.pre") == "smollm":
            tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Digits(individual_digits=True),
                    pre_tokenizers.ByteLevel(add_prefix_space=False),
                ]
            )
    return tokenizer


def _text_field(path: Path, name: str) -> str | None:
    """A text value of the file's header, without reading the vocabulary that takes seconds to parse.

    A value lies behind its key: type 8 (text) in 4 bytes, length in 8, then UTF-8, all little-endian (GGUF, version 2
    and later).
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = data.find(struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", 8))
        if found < 0:
            return None
        start = found + 8 + len(name) + 4
        (length,) = struct.unpack_from("<Q", data, start)
        return data[start + 8 : start + 8 + length].decode("utf-8")


def _need_gguf() -> None:
    if importlib.util.find_spec("gguf") is None:
        raise ModelError("reading a .gguf file needs the package gguf: pip install 'groupwise[demo]'")
