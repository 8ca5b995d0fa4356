"""Loading the policy: which model, which tokenizer, where, in which precision, and what ends a response.

Four things are changed on every model, so that what is sampled is what is trained:

- Dropout is off in every layer of the model. A policy gradient needs the log-probs of the distribution that was
  sampled from, and a network that drops units at random is another distribution at each call. The adapter's own
  dropout (`lora.dropout`) is the one exception, for those who ask for it.
- The folder's generation defaults (`temperature`, `top_k`, `max_new_tokens`, ...) are removed; only the ids of its
  stop and pad tokens stay. The run's own sampling settings are the only ones.
- Embeddings have no padding row. transformers gives the pad token's row no gradient, and the pad token of many
  models is their stop token, which must be trained. Padding itself is kept out by masks.
- The weights have one dtype, `model.dtype`.

A model saved after training carries the first two.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub.errors import StrictDataclassFieldValidationError
from transformers import CONFIG_MAPPING, GenerationConfig, PreTrainedConfig
from transformers.models.auto.configuration_auto import AutoConfig
from transformers.models.auto.modeling_auto import AutoModelForCausalLM
from transformers.models.auto.tokenization_auto import AutoTokenizer
from transformers.utils.hub import cached_file

from groupwise import registry
from groupwise.config.memory import MemoryConfig
from groupwise.config.model import LoraConfig, ModelConfig
from groupwise.errors import ConfigError, ModelError
from groupwise.model.embedded import embedded_folder
from groupwise.model.find import EMBEDDED, TINY, find_model
from groupwise.model.flex import resolve_flex
from groupwise.model.gguf_file import read_gguf, read_gguf_tokenizer
from groupwise.model.precision import resolve_precision
from groupwise.model.quantise import check_installed, quantise, weight_count
from groupwise.model.reading import portable, quiet, reading
from groupwise.model.tiny import build_tiny, tiny_tokenizer

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["Policy", "find_model", "load_policy", "load_tokenizer", "read_config", "resolve_device"]

_UNBOUNDED = 2**31 - 1  # context of a model that states no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The model that is trained, with what sampling and training need to know of it."""

    model: PreTrainedModel | PeftModel
    """In evaluation mode, without dropout, on `device`."""
    tokenizer: PreTrainedTokenizerBase
    """With a pad token and the chat template in force."""
    name: str
    """`model.name` as configured."""
    stop_token_ids: tuple[int, ...]
    """Drawing any of them ends a response; ascending, at least one."""
    pad_token_id: int
    """Fills batches up; masked, never trained as padding. Often one of the stop tokens."""
    context_tokens: int
    """Longest sequence, prompt and response together, that the model was made for."""
    device: torch.device
    """Where the weights are."""
    lora: bool
    """True when only an adapter is trained."""
    precision: torch.dtype | None = None
    """Of the layers' products, in training and sampling, see `model/precision.py`; None for the weights' own."""
    flex: bool = False
    """True when training attends by FlexAttention."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Token ids as text, all of it: special tokens are spelled out and spaces left as they are."""
        text: str = self.tokenizer.decode(
            list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    @property
    def millions(self) -> float:
        """Weights, those of an adapter included, in millions."""
        count = sum(weight_count(p) for p in self.model.parameters())
        return count / 1e6


def load_tokenizer(config: ModelConfig, *, base: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of `model.tokenizer`, else of `model.name`, with `model.chat_template` and `model.pad_token` set.

    Args:
        config: the section `model`.
        base: folder of the configuration file, for relative paths.

    Raises:
        ModelError: there is none, or it cannot be read.
        ConfigError: the pad token is not in the vocabulary, or the chat template is missing or does not render.
    """
    key = "model.name" if config.tokenizer is None else "model.tokenizer"
    name = config.tokenizer or config.name
    revision = config.revision if config.tokenizer is None else None
    found = find_model(name, base, revision=revision, key=key, tokenizer=True)
    if found == TINY:
        tokenizer: Any = tiny_tokenizer()
    elif isinstance(found, Path) and found.suffix.lower() == ".gguf":
        tokenizer = read_gguf_tokenizer(found)
    else:
        source = embedded_folder() if found == EMBEDDED else found
        with reading(
            f"the tokenizer of {name}", remedy="model.tokenizer names another folder or hub id for it"
        ):
            known = {"revision": revision, "trust_remote_code": config.trust_remote_code}
            if not isinstance(source, Path) or (source / "config.json").is_file():
                known["config"] = _read_config(source, config)
            tokenizer = AutoTokenizer.from_pretrained(str(source), **known)
    portable(tokenizer)
    if config.chat_template is not None:
        _set_chat_template(tokenizer, config.chat_template, base)
    if config.pad_token is not None:
        tokenizer.pad_token_id = _token_id(config.pad_token, tokenizer, "model.pad_token")
    return tokenizer


def load_policy(
    config: ModelConfig,
    *,
    lora: LoraConfig | None,
    stop_tokens: Sequence[str] = (),
    base: Path,
    seed: int,
    memory: MemoryConfig | None = None,
) -> Policy:
    """Load the model and its tokenizer, and attach an adapter when one is asked for.

    A response ends at any of: the tokenizer's end-of-sequence token, those that the model's configuration and its
    generation settings state (one id or a list), and `stop_tokens`. Ids outside the vocabulary cannot be drawn and are
    left out.

    Args:
        config: the section `model`.
        lora: the section `lora`; None trains every weight.
        stop_tokens: `rollout.stop_tokens`, names of further tokens that end a response.
        base: folder of the configuration file, for relative paths.
        seed: decides a fresh adapter's weights, and all weights of the model `tiny`. The global random state is
            neither read nor changed.
        memory: the section `memory`; None leaves all weights as they are.

    Raises:
        ModelError: no such model, it cannot be read, lacks weights, is quantised, or nothing would end its responses.
        ConfigError: a device that is not there, a token that is not in the vocabulary, layers that the adapter cannot
            be put on, a package that is missing.
    """
    memory = memory or MemoryConfig()
    check_installed(memory)
    device = resolve_device(config.device)
    flex = resolve_flex(config.attention, device)
    tokenizer = load_tokenizer(config, base=base)
    model, stated = _load_model(config, base, seed)
    vocabulary = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > vocabulary:
        raise ModelError(
            f"the tokenizer {config.tokenizer or config.name} has {len(tokenizer)} tokens, but the model {config.name} "
            f"only {vocabulary}; they do not belong together"
        )
    stop_ids = {_token_id(token, tokenizer, "rollout.stop_tokens") for token in stop_tokens}
    stop_ids |= _ids(tokenizer.eos_token_id).union(*(_ids(each.get("eos_token_id")) for each in stated))
    stop_ids = {i for i in stop_ids if 0 <= i < vocabulary}
    if not stop_ids:
        raise ModelError(
            f"the model {config.name} names no token that ends a response, so every rollout would run to the limit; "
            "name one in rollout.stop_tokens"
        )
    pads = [_ids(tokenizer.pad_token_id), *(_ids(each.get("pad_token_id")) for each in stated), stop_ids]
    pad = next(min(ids) for ids in pads if ids and 0 <= min(ids) < vocabulary)
    if tokenizer.pad_token_id != pad:
        tokenizer.pad_token_id = pad
    _make_plain(model, tokenizer.bos_token_id, stop_ids, pad)
    precision = None
    if config.dtype == "float32":  # other weights are multiplied in their own type anyway
        weights = sum(p.numel() for p in model.parameters())
        precision = resolve_precision(config.precision, device, weights=weights)
    if memory.quantise is not None:
        quantise(model, memory, compute=precision or model.dtype)
    model.to(device)
    if lora is not None:
        from groupwise.model.lora import attach  # PEFT takes seconds to import

        model = attach(model, lora, seed=seed, base=base)
    return Policy(
        model=model,
        tokenizer=tokenizer,
        name=config.name,
        stop_token_ids=tuple(sorted(stop_ids)),
        pad_token_id=pad,
        context_tokens=_context(model.config, tokenizer),
        device=device,
        lora=lora is not None,
        precision=precision,
        flex=flex,
    )


def _load_model(config: ModelConfig, base: Path, seed: int) -> tuple[PreTrainedModel, list[dict[str, Any]]]:
    """The model, and the settings in which its stop and pad ids are stated."""
    found = find_model(config.name, base, revision=config.revision)
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[config.dtype]
    if found == TINY:
        model: Any = build_tiny(seed, dtype=dtype)[0]
        return model, [model.config.to_dict()]
    what = f"the model {config.name}"
    if isinstance(found, Path) and found.suffix.lower() == ".gguf":
        model_class, model_config, weights = read_gguf(found)
        with reading(what):
            _without_dropout(model_config)
            model = model_class.from_pretrained(None, config=model_config, state_dict=weights, dtype=dtype)
        return model, [model_config.to_dict()]
    source = embedded_folder() if found == EMBEDDED else found
    with reading(what):
        model_config = _read_config(source, config)
        if getattr(model_config, "quantization_config", None) is not None:
            raise ModelError(
                f"{what} is quantised, so its weights cannot be trained; name its unquantised original"
            )
        _without_dropout(model_config)
        model, report = AutoModelForCausalLM.from_pretrained(
            str(source),
            config=model_config,
            generation_config=GenerationConfig(),  # in place of the folder's
            dtype=dtype,
            revision=config.revision,
            trust_remote_code=config.trust_remote_code,
            output_loading_info=True,
        )
        files = [
            _read_json(source, name, config.revision) for name in ("config.json", "generation_config.json")
        ]
    missing = sorted(report["missing_keys"])
    if missing:  # transformers fills them with random numbers
        raise ModelError(
            f"{what} lacks the weights of {len(missing)} of its parameters, for example {missing[0]}; it may be "
            "damaged, or not be a causal language model"
        )
    return model, [*files, files[0].get("text_config") or {}]


def read_config(config: ModelConfig, *, base: Path) -> PreTrainedConfig:
    """The configuration of `model.name`, without its weights.

    Args:
        config: the section `model`.
        base: folder of the configuration file, for relative paths.

    Raises:
        ModelError: no such model, or its configuration cannot be read.
    """
    found = find_model(config.name, base, revision=config.revision)
    if found == TINY:
        built: PreTrainedConfig = build_tiny()[0].config
        return built
    with reading(f"the model {config.name}"):
        if isinstance(found, Path) and found.suffix.lower() == ".gguf":
            header: PreTrainedConfig = AutoConfig.from_pretrained(str(found.parent), gguf_file=found.name)
            return header
        return _read_config(embedded_folder() if found == EMBEDDED else found, config)


def _read_config(source: Path | str, config: ModelConfig) -> PreTrainedConfig:
    """The model's configuration; a list of pad ids, which transformers refuses, becomes its first."""
    try:
        return AutoConfig.from_pretrained(
            str(source), revision=config.revision, trust_remote_code=config.trust_remote_code
        )
    except StrictDataclassFieldValidationError:
        values = _read_json(source, "config.json", config.revision)
        pad, kind = values.get("pad_token_id"), values.get("model_type")
        if not (isinstance(pad, list) and pad and kind in CONFIG_MAPPING):
            raise
        return CONFIG_MAPPING[kind].from_dict({**values, "pad_token_id": pad[0]})


def _read_json(source: Path | str, name: str, revision: str | None) -> dict[str, Any]:
    """A settings file as it is written; empty when there is none.

    transformers' own objects hold a default, such as 2 for a Llama's stop token, where a file states nothing.
    """
    path = cached_file(str(source), name, revision=revision, _raise_exceptions_for_missing_entries=False)
    values: dict[str, Any] = {} if path is None else json.loads(Path(path).read_text(encoding="utf-8"))
    return values


def _without_dropout(config: PreTrainedConfig) -> None:
    """Set every rate of dropout, layer drop and router jitter in the configuration to 0, also in nested ones."""
    for name, value in list(vars(config).items()):
        if isinstance(value, PreTrainedConfig):
            _without_dropout(value)
        elif ("drop" in name or "jitter" in name) and isinstance(value, float) and value != 0:
            setattr(config, name, 0.0)


def _make_plain(model: PreTrainedModel, bos: int | None, stop_ids: set[int], pad: int) -> None:
    for module in model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0  # in models whose code does not take the rate from the configuration
        elif isinstance(module, torch.nn.Embedding):
            module.padding_idx = None
    model.generation_config = GenerationConfig(
        bos_token_id=bos,
        eos_token_id=sorted(stop_ids) if len(stop_ids) > 1 else min(stop_ids),
        pad_token_id=pad,
    )
    for each in {id(c): c for c in (model.config, model.config.get_text_config())}.values():
        each.return_dict = True  # some folders ask for tuples, in which nothing has a name
    model.requires_grad_(True)
    model.eval()


def resolve_device(name: str, key: str = "model.device") -> torch.device:
    """The device that a name means. `auto` is CUDA, else Apple's, else the CPU; a bare `cuda` the current one.

    Args:
        name: as configured.
        key: the configuration's key, for messages.

    Raises:
        ConfigError: no such device, or it is not there.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps"):
        raise ConfigError(f"{key} {name!r} is not a device; use auto, cpu, cuda, cuda:1 or mps")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            raise ConfigError(f"{key} is {name}, but torch sees no CUDA device here; use auto or cpu")
        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        if device.index >= count:
            raise ConfigError(f"{key} is {name}, but the devices here are cuda:0 to cuda:{count - 1}")
    elif device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"{key} is mps, but this machine has none; use auto or cpu")
    return device


def _token_id(token: str, tokenizer: PreTrainedTokenizerBase, key: str) -> int:
    """The id of a token by name, or of a text such as a newline that is exactly one token.

    Looked up in the vocabulary: `convert_tokens_to_ids` would give the unknown token's id for a typing error.
    """
    vocabulary = tokenizer.get_vocab()
    if token in vocabulary:
        return int(vocabulary[token])
    ids = tokenizer.encode(token, add_special_tokens=False)
    if len(ids) == 1 and ids[0] != tokenizer.unk_token_id and tokenizer.decode(ids) == token:
        return int(ids[0])
    special = sorted(tokenizer.all_special_tokens)
    near = registry.nearest(token, special) or registry.nearest(token, vocabulary)
    hint = f"did you mean {near!r}?" if near else f"its special tokens are {', '.join(special) or 'none'}"
    raise ConfigError(f"{key}: {token!r} is not a token of the tokenizer's vocabulary; {hint}")


def _set_chat_template(tokenizer: PreTrainedTokenizerBase, name: str, base: Path) -> None:
    path = base / Path(name).expanduser()
    try:
        template = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a NUL character in the name
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"model.chat_template {path} cannot be read: {reason}; name a Jinja file"
        ) from error
    tokenizer.chat_template = template
    trial = [{"role": "user", "content": "2 + 2?"}]
    try:
        with quiet():
            rendered = tokenizer.apply_chat_template(trial, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # a template can fail in any way that an expression can
        line = f", line {error.lineno}" if hasattr(error, "lineno") else ""
        raise ConfigError(f"model.chat_template {path}{line} does not render a user turn: {error}") from error
    if "2 + 2?" not in rendered:
        raise ConfigError(
            f"model.chat_template {path} leaves out the text of a user turn; is it the right file?"
        )


def _ids(value: Any) -> set[int]:
    """A setting that holds no id, one, or a list of them."""
    if value is None:
        return set()
    return {int(i) for i in value} if isinstance(value, list | tuple) else {int(value)}


def _context(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """What the model's positions reach; else the tokenizer's limit; else about two thousand million.

    Rotary positions of the kind `longrope` (Phi-3.5, Phi-4-mini) turn by other frequencies as soon as the longest
    sequence of a call is over a border. Beyond it, what a token gets would depend on the sequences beside it, and on
    how many tokens are still to come, so the border is the limit.
    """
    text = config.get_text_config()
    stated = getattr(text, "max_position_embeddings", None)
    rotary = getattr(text, "rope_parameters", None) or {}
    if rotary.get("rope_type") == "longrope":
        stated = rotary.get("original_max_position_embeddings") or stated
    with contextlib.suppress(TypeError, OverflowError):
        if stated is not None and stated > 0:
            return int(stated)
    return min(int(tokenizer.model_max_length), _UNBOUNDED)
