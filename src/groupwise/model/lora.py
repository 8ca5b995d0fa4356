"""Training a low-rank adapter (LoRA, Hu et al. 2021) in place of the weights, through PEFT.

Adapters go on linear layers other than the head: log-probs are computed from the head's weight in chunks, without
calling the head, and a head that shares the embedding's weight would change the embedding when merged. In a mixture
PEFT puts one on the experts and the router as well, which are single parameters and no layers, where it knows them.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import peft
import torch
from peft.tuners.lora import Linear as PeftLinear
from peft.tuners.lora import LoraLayer, ParamWrapper
from transformers.pytorch_utils import Conv1D

from groupwise import registry
from groupwise.config.model import LoraConfig
from groupwise.errors import CheckpointError, ConfigError, ModelError
from groupwise.model.quantise import is_quantised, plain_weight
from groupwise.model.reading import reading
from groupwise.model.sharding import whole_copy, whole_state

if TYPE_CHECKING:
    from peft import PeftModel
    from torch import Tensor
    from transformers import PreTrainedModel

POLICY = "default"
"""PEFT's name of the adapter that is trained."""
REFERENCE = "reference"
"""PEFT's name of the frozen copy of an adapter that a run started from."""


def attach(model: PreTrainedModel, config: LoraConfig, *, seed: int, base: Path | None = None) -> PeftModel:
    """Put an adapter on the model and freeze everything else. The model's own weights are not changed.

    A fresh adapter adds nothing at first: A is drawn from the seed and B is 0. With `config.adapter` the run goes on
    from a tuned one; since the reference is the policy at the start, a frozen second copy of it is kept for the
    reference. Rank, scale and layers are then the adapter's own. With a base in half precision the adapter is kept in
    float32 (PEFT's choice).

    Args:
        model: as loaded, without an adapter.
        config: the section `lora`.
        seed: decides a fresh adapter's weights; the global random state is neither read nor changed.
        base: folder of the configuration file, for a relative `config.adapter`; the working folder by default.

    Raises:
        ConfigError: no layer of such a name, or one that an adapter cannot be put on.
        ModelError: `config.adapter` is not a folder with a LoRA adapter for this model.
    """
    if config.adapter is not None:
        return _continue(model, config, (base or Path.cwd()) / Path(config.adapter).expanduser())
    _check_targets(model, config.target_modules)
    everywhere = config.target_modules == "all-linear"
    layers = _layers(model)
    adapter = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=config.rank,
        lora_alpha=config.alpha or 2 * config.rank,
        lora_dropout=config.dropout,
        target_modules="all-linear" if everywhere else list(config.target_modules),
        fan_in_fan_out=any(isinstance(layer, Conv1D) for layer in layers.values()),
    )
    kinds = ", ".join(sorted({name.rsplit(".", 1)[-1] for name in layers}))
    try:
        return _put_on(model, adapter, seed)
    except ValueError as error:  # of layers that a kernel reads past, or a dropout that experts cannot have
        said = str(error).partition("\n")[0].rstrip(".")
        raise ConfigError(
            f"lora: PEFT refuses this adapter: {said}; change that setting, or name the layers to adapt in "
            f"lora.target_modules (this model's are {kinds})"
        ) from error


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what PEFT says of its own doing: an old name in transformers, and ranks that it wrote for experts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        warnings.filterwarnings(
            "ignore", r"The following (rank|alpha)_pattern keys did not match", RuntimeWarning
        )
        yield


def _put_on(model: PreTrainedModel, adapter: Any, seed: int) -> PeftModel:
    with _quietly(), torch.random.fork_rng(devices=[]):  # PEFT draws on the CPU, then moves
        torch.default_generator.manual_seed(seed)
        return peft.get_peft_model(model, adapter, adapter_name=POLICY)


@contextmanager
def reference_weights(model: PeftModel) -> Iterator[None]:
    """Inside, the model is the policy as it was at the start: its adapter off, or the one it started from on.

    Which adapter is on, and which parameters take gradients, is as before afterwards, also after an exception and when
    nested.
    """
    before = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    active = model.active_adapter
    try:
        if REFERENCE in model.peft_config:
            model.set_adapter(REFERENCE, inference_mode=True)
            yield
        else:
            with model.disable_adapter():
                yield
    finally:
        if REFERENCE in model.peft_config:
            model.set_adapter(active)
        for parameter, wanted in before:  # PEFT switches gradients along with adapters
            parameter.requires_grad_(wanted)


@torch.no_grad()
def merged_weights(model: PeftModel) -> dict[str, Tensor]:
    """The weights of the model with its adapter merged in, under the base model's own names.

    Layers are copied one at a time and merged in the copy, so the base in memory stays as it is, bit for bit, however
    often this is called; adding an adapter and subtracting it again would leave rounding behind. Merged layers are on
    the CPU; all other tensors are the model's own. Layers in 4 bit are unpacked, so what comes out is a plain model.
    Where weights are divided among processes, all of them call this, and the first one's tensors are whole.

    Raises:
        CheckpointError: the adapter holds numbers that are not finite.
    """
    base = model.get_base_model()
    layers: dict[str, Any] = _altered_layers(base)
    weights = {
        name: tensor
        for name, tensor in whole_state(base).items()
        if not any(name.startswith(f"{layer}.") for layer in layers)
    }
    for name, layer in layers.items():
        if _packed(layer):
            weights |= _unpacked(name, layer)
            continue
        merged = whole_copy(layer)
        try:
            part = merged
            while isinstance(part, LoraLayer):  # experts have an adapter around another, for two parameters
                part.merge(safe_merge=True, adapter_names=[POLICY])
                part = part.base_layer
        except ValueError as error:
            raise CheckpointError(
                f"the adapter of layer {name} holds numbers that are not finite, so it cannot be merged; go back to "
                "an earlier checkpoint"
            ) from error
        for part, tensor in merged.get_base_layer().state_dict().items():
            weights[f"{name}.{part}"] = tensor.cpu()
    return weights


def _unpacked(name: str, layer: torch.nn.Module, *, merge: bool = True) -> dict[str, Tensor]:
    """The weight and bias of a layer whose base is in 4 bit, in the dtype that this was quantised from, on the CPU.

    Raises:
        CheckpointError: its adapter is to be merged, and holds numbers that are not finite.
    """
    base: Any = layer.get_base_layer() if isinstance(layer, LoraLayer) else layer
    weight = plain_weight(base)
    if merge and isinstance(layer, LoraLayer):
        weight = weight + layer.get_delta_weight(POLICY).to(weight.dtype)
        if not bool(weight.isfinite().all()):
            raise CheckpointError(
                f"the adapter of layer {name} holds numbers that are not finite, so it cannot be merged; go back to "
                "an earlier checkpoint"
            )
    found = {f"{name}.weight": weight.cpu()}
    if base.bias is not None:
        found[f"{name}.bias"] = base.bias.detach().cpu()
    return found


@torch.no_grad()
def base_weights(model: PeftModel) -> dict[str, Tensor]:
    """The weights of the model without its adapters, under the base model's own names; the model's own tensors.

    Layers in 4 bit are unpacked: what comes out is the plain model that an adapter is computed on. Where weights are
    divided among processes, all of them call this, and the first one's tensors are whole.
    """
    base = model.get_base_model()
    weights: dict[str, Tensor] = {}
    layers = _altered_layers(base)
    for name, tensor in whole_state(base).items():
        above = next((each for each in layers if name.startswith(f"{each}.")), None)
        if above is None:
            weights[name] = tensor
        elif name.startswith(f"{above}.base_layer.") and not _packed(layers[above]):
            inner = name.removeprefix(f"{above}.")
            while inner.startswith("base_layer."):
                inner = inner.removeprefix("base_layer.")
            if not inner.startswith("lora_"):  # of an adapter within another
                weights[f"{above}.{inner}"] = tensor
    for name, layer in layers.items():
        if _packed(layer):
            weights |= _unpacked(name, layer, merge=False)
    return weights


def _altered_layers(base: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """The layers that are not plain, by name: those with an adapter, and those in 4 bit without one; not what is within
    one of them."""
    return {
        name: module
        for name, module in base.named_modules()
        if (isinstance(module, LoraLayer) or is_quantised(module)) and not name.endswith(".base_layer")
    }


def _packed(layer: torch.nn.Module) -> bool:
    """True for a layer in 4 bit, with an adapter or without."""
    return is_quantised(layer.get_base_layer() if isinstance(layer, LoraLayer) else layer)


def merged_layers(
    model: torch.nn.Module,
) -> dict[torch.nn.Module, Callable[[], tuple[Tensor, Tensor | None]]]:
    """For each layer with an active adapter, what gives its weight [out, in] with the adapter merged in, and its bias.

    Only where the sum loses nothing to rounding and means what the layer computes: a linear layer in float32, plain
    LoRA. Others (a base in half precision, quantised, DoRA) compute with their adapter beside them. The base's own
    tensors are never written.
    """
    return {
        module: functools.partial(_merged, module)
        for module in model.modules()
        if isinstance(module, PeftLinear)
        and not module.disable_adapters
        and type(module.base_layer) is torch.nn.Linear
        and module.base_layer.weight.dtype is torch.float32
        and not any(
            module.use_dora.get(name) or module.lora_bias.get(name) for name in module.active_adapters
        )
    }


def _merged(layer: PeftLinear) -> tuple[Tensor, Tensor | None]:
    weight = layer.base_layer.weight.detach()
    for name in layer.active_adapters:
        if name in layer.lora_A:
            weight = weight + layer.get_delta_weight(name)
    return weight, layer.base_layer.bias


def _layers(model: PreTrainedModel) -> dict[str, torch.nn.Module]:
    """Layers that an adapter can be put on, by full name."""
    head = model.get_output_embeddings()
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear | Conv1D) and module is not head
    }


def _check_targets(model: PreTrainedModel, targets: tuple[str, ...] | str) -> None:
    """Refuse a name that no layer has, or that means something other than linear layers below the head."""
    layers = _layers(model)
    kinds = sorted({name.rsplit(".", 1)[-1] for name in layers})
    if not layers:
        raise ConfigError(
            "lora: the model has no linear layers that an adapter could be put on; train it in full"
        )
    if isinstance(targets, str):
        return
    if not targets:
        raise ConfigError(f"lora.target_modules is empty; this model's layers are {', '.join(kinds)}")
    for target in targets:
        found = {n: m for n, m in model.named_modules() if n == target or n.endswith(f".{target}")}
        if not found:
            near = registry.nearest(target, kinds)
            hint = f"did you mean {near!r}? " if near else ""
            raise ConfigError(
                f"lora.target_modules: no layer is called {target!r}; {hint}this model's are {', '.join(kinds)}"
            )
        wrong = next((n for n in found if n not in layers), None)
        if wrong is not None:
            what = (
                "the head" if found[wrong] is model.get_output_embeddings() else type(found[wrong]).__name__
            )
            raise ConfigError(
                f"lora.target_modules: {target!r} means {wrong} ({what}), which takes no adapter here; this model's "
                f"layers that do are {', '.join(kinds)}"
            )


def _continue(model: PreTrainedModel, config: LoraConfig, folder: Path) -> PeftModel:
    """The model with the adapter in `folder` twice: to train, and frozen as the reference."""
    if not (folder / "adapter_config.json").is_file():
        raise ModelError(
            f"lora.adapter: {folder} {'has no adapter_config.json' if folder.is_dir() else 'is not a folder'}; name a "
            "folder that PEFT saved"
        )
    with reading(f"the adapter {folder}"):
        adapter = peft.PeftConfig.from_pretrained(str(folder))
        _check_adapter(config, adapter, folder)
        weights = peft.load_peft_weights(str(folder), device="cpu")
        tuned: Any = None
        for name in (POLICY, REFERENCE):
            own = copy.deepcopy(adapter)
            own.inference_mode = name == REFERENCE
            own.lora_dropout = config.dropout if name == POLICY else 0.0
            if tuned is None:
                tuned = _put_on(model, own, 0)
                _check_places(tuned, folder)
            else:
                # PEFT draws weights first; the folder's replace them.
                with _quietly(), torch.random.fork_rng(devices=[]):
                    tuned.add_adapter(name, own)
            _fill(tuned, weights, name, folder)
        tuned.set_adapter(POLICY)
        tuned.set_requires_grad(REFERENCE, requires_grad=False)
    return tuned


def _check_adapter(config: LoraConfig, adapter: Any, folder: Path) -> None:
    if not isinstance(adapter, peft.LoraConfig):
        raise ModelError(
            f"lora.adapter: {folder} holds a {adapter.peft_type} adapter; only LoRA is trained here"
        )
    extras = {
        "modules_to_save": "whole layers beside it",
        "trainable_token_indices": "embeddings beside it",
        "layer_replication": "repeated layers",
    }
    for key, what in extras.items():
        if getattr(adapter, key, None):
            raise ModelError(
                f"lora.adapter: {folder} holds {what} ({key}), which is not supported; merge it into its base model"
            )
    if adapter.bias != "none":
        raise ModelError(f"lora.adapter: {folder} trains biases of the base; merge it into its base model")
    if adapter.init_lora_weights not in (True, False, "gaussian"):
        raise ModelError(  # PiSSA and its like change the base weights while the adapter is put on
            f"lora.adapter: {folder} was started by {adapter.init_lora_weights!r}, which changes the base as well; "
            "merge it into its base model"
        )
    fields = LoraConfig.model_fields
    chosen = {"rank": (config.rank, adapter.r), "alpha": (config.alpha, adapter.lora_alpha)}
    for key, (asked, own) in chosen.items():
        if asked != own and asked != fields[key].default:
            raise ConfigError(
                f"lora.{key} is {asked:g}, but the adapter {folder} was made with {own:g}; leave lora.{key} out"
            )


def _check_places(model: PeftModel, folder: Path) -> None:
    """Refuse an adapter that reaches beyond linear layers and experts below the head; its names may be patterns."""
    base = model.get_base_model()
    for name, module in base.named_modules():
        if not isinstance(module, LoraLayer):
            continue
        linear = isinstance(module.get_base_layer(), torch.nn.Linear | Conv1D)
        embedding = isinstance(module.get_base_layer(), torch.nn.Embedding)
        # Layers of a mixture hold the weights of all experts in one parameter, which is adapted as such.
        taken = not linear and not embedding if isinstance(module, ParamWrapper) else linear
        if module.lora_bias.get(POLICY) and getattr(module.get_base_layer(), "bias", None) is None:
            raise ModelError(
                f"lora.adapter: {folder} adds a bias to {name}, which has none to merge it into (lora_bias); train one "
                "without"
            )
        if not taken or module is base.get_output_embeddings():
            raise ModelError(
                f"lora.adapter: {folder} adapts {name}, which takes no adapter here; merge it into its base model"
            )


def _fill(model: PeftModel, weights: dict[str, Tensor], name: str, folder: Path) -> None:
    """Put the folder's weights into the adapter `name`, all of them and nothing else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what fits not is an error below
        report = peft.set_peft_model_state_dict(model, weights, adapter_name=name)
    expected = peft.get_peft_model_state_dict(model, adapter_name=name)
    lacking = sorted(set(expected) - set(weights))
    strange = sorted(report.unexpected_keys)
    if lacking or strange:
        raise ModelError(
            f"lora.adapter: {folder} does not fit this model: {len(lacking)} of its tensors are missing and "
            f"{len(strange)} are not known, for example {(lacking + strange)[0]}; was it made for another model?"
        )
