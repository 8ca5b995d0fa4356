"""The sizes of a model, from its configuration alone: no weight is loaded or drawn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.config.model import LoraConfig, ModelConfig
from groupwise.errors import ModelError
from groupwise.workbench.planning.devices import published

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig

_TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Layers that read the same tensor."""
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """One linear layer."""

    name: str
    """Last part of its name."""
    inputs: int
    """Features that it reads."""
    outputs: int
    """Features that it gives."""

    @property
    def weights(self) -> int:
        """Its weights, a bias aside."""
        return self.inputs * self.outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A dense decoder whose layers are alike."""

    name: str
    """As configured."""
    hidden: int
    """Width of the residual stream, D."""
    layers: int
    """Decoder layers, L."""
    heads: int
    """Query heads of a layer."""
    query_width: int
    """Features of all query heads together, Q."""
    key_width: int
    """Features of all key heads together, K; as many of the values."""
    intermediate: int
    """Width inside the feed-forward part, I."""
    gated: bool
    """The feed-forward part multiplies two products, as in SwiGLU."""
    silu: bool
    """Its activation is SiLU, so that the product is one operation (`model/gated.py`) where numbers are float32."""
    tanh: bool
    """Its activation is written out with a hyperbolic tangent (GPT-2), which keeps more for the backward pass."""
    vocabulary: int
    """Tokens, V."""
    tied: bool
    """The head's weight is the embedding's."""
    weights: int
    """All weights, tied ones once."""
    norms: tuple[int, ...]
    """Features that each norm of a layer reads, for one token."""
    linears: tuple[Linear, ...]
    """The linear layers of one decoder layer."""
    context: int
    """Longest sequence."""

    @property
    def linear_weights(self) -> int:
        """Weights of the linear layers below the head, biases aside."""
        return self.layers * sum(linear.weights for linear in self.linears)

    @property
    def repeat(self) -> int:
        """Query heads for each key head."""
        return self.query_width // self.key_width

    @property
    def head_weights(self) -> int:
        """Of the head, which may be the embedding's."""
        return self.vocabulary * self.hidden

    def adapted(self, lora: LoraConfig) -> tuple[Linear, ...]:
        """The linear layers of one decoder layer that an adapter is put on."""
        if lora.target_modules == "all-linear":
            return self.linears
        wanted = {name.rpartition(".")[2] for name in lora.target_modules}
        return tuple(linear for linear in self.linears if linear.name in wanted)

    def adapter_weights(self, lora: LoraConfig) -> int:
        """A of [rank, inputs] and B of [outputs, rank] for each adapted layer."""
        return self.layers * sum(lora.rank * (each.inputs + each.outputs) for each in self.adapted(lora))

    def read(self, linears: tuple[Linear, ...], *, apart: bool) -> int:
        """Features that some layers read, for one token.

        Args:
            linears: of one decoder layer.
            apart: each keeps a copy of its own; else those that read the same tensor keep it once.
        """
        if apart:
            return sum(linear.inputs for linear in linears)
        groups = {
            next((group for group in _TOGETHER if each.name in group), (each.name,)): each.inputs
            for each in linears
        }
        return sum(groups.values())


def shape_of(config: ModelConfig, base: Path) -> Shape:
    """The sizes of `model.name`. Published models are known without a network, by their hub id.

    Args:
        config: the section `model`.
        base: folder of the configuration file.

    Raises:
        ModelError: no such model, or one whose layers are not alike, such as a mixture of experts.
    """
    name = config.name
    for row in published()["models"]:
        if name.lower() in (each.lower() for each in row["ids"]) and not (base / name).exists():
            return of_config(name, _written_out(row["config"]))
    from groupwise.model.load import read_config

    return of_config(name, read_config(config, base=base))


def _written_out(values: dict[str, Any]) -> PreTrainedConfig:
    from transformers import CONFIG_MAPPING

    kind = values["model_type"]
    made: PreTrainedConfig = CONFIG_MAPPING[kind](**{k: v for k, v in values.items() if k != "model_type"})
    return made


def of_config(name: str, config: PreTrainedConfig) -> Shape:
    """The sizes of the model that a configuration describes, built on torch's `meta` device, which holds no numbers.

    Raises:
        ModelError: its layers are not alike.
    """
    import torch
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM

    from groupwise.model.reading import reading

    text: Any = config.get_text_config()
    experts = next((key for key in _EXPERTS if (getattr(text, key, None) or 0) > 1), None)
    if experts is not None:
        raise ModelError(
            f"the model {name} is a mixture of {getattr(text, experts)} experts ({experts}), whose memory plan does "
            "not know; it knows dense decoders"
        )
    with reading(f"the model {name}"), torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)
    listed = [list(m) for m in model.modules() if isinstance(m, torch.nn.ModuleList)]
    layers = max(listed, key=len, default=[])
    if not layers or len({sum(p.numel() for p in layer.parameters()) for layer in layers}) != 1:
        raise ModelError(
            f"the layers of the model {name} are not alike, and plan knows models of one kind of layer; train a few "
            "steps and look at memory/peak in its metrics"
        )
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    query = size * text.num_attention_heads
    key = size * (getattr(text, "num_key_value_heads", None) or text.num_attention_heads)
    linears = _linears(layers[0])
    inner = max(linear.outputs for linear in linears if linear.inputs == text.hidden_size)
    gated = any(linear.name == "gate_proj" for linear in linears)
    return Shape(
        name=name,
        hidden=text.hidden_size,
        layers=len(layers),
        heads=text.num_attention_heads,
        query_width=query,
        key_width=key,
        intermediate=next((each.outputs for each in linears if each.name == "up_proj"), inner),
        gated=gated,
        silu=getattr(text, "hidden_act", None) in ("silu", "swish"),
        tanh="new" in str(getattr(text, "activation_function", "")),
        vocabulary=embedding.weight.shape[0],
        tied=head.weight is embedding.weight,
        weights=sum(p.numel() for p in model.parameters()),
        norms=_norms(layers[0], size=size, query=query, key=key),
        linears=linears,
        context=int(getattr(text, "max_position_embeddings", 0) or 2**31 - 1),
    )


def _linears(layer: torch.nn.Module) -> tuple[Linear, ...]:
    import torch
    from transformers.pytorch_utils import Conv1D

    found = []
    for name, module in layer.named_modules():
        last = name.rpartition(".")[2]
        if isinstance(module, torch.nn.Linear):
            found.append(Linear(name=last, inputs=module.in_features, outputs=module.out_features))
        elif isinstance(module, Conv1D):  # GPT-2's, whose weight is [in, out]
            found.append(Linear(name=last, inputs=module.weight.shape[0], outputs=module.weight.shape[1]))
    return tuple(found)


def _norms(layer: torch.nn.Module, *, size: int, query: int, key: int) -> tuple[int, ...]:
    """Features that each norm reads for one token; one of a head's size is applied to every head."""
    widths = []
    for name, module in layer.named_modules():
        weight = getattr(module, "weight", None)
        if "Norm" not in type(module).__name__ or weight is None:
            continue
        per_head = weight.numel() == size and name.rpartition(".")[2] in ("q_norm", "k_norm")
        widths.append((query if name.endswith("q_norm") else key) if per_head else weight.numel())
    return tuple(widths)
