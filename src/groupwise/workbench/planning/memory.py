"""The memory of one process, phase by phase: docs/plan.md derives each formula.

Letters: D hidden, L layers, Q and K the width of queries and keys, I the feed-forward part's, V the vocabulary; S the
tokens of a forward pass, M its predictions, P and T the tokens of a prompt and of a response. Everything is in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from groupwise.model.quantise import bits_per_weight
from groupwise.model.recorded import MASS_ELEMENTS
from groupwise.workbench.planning.devices import GIB
from groupwise.workbench.planning.settings import Pass, Setting

CHUNK = 4 * (1 << 24)
"""Logits held at once, as `model.head.CHUNK_ELEMENTS` bounds them."""
_DRAWING = 4.0
"""Copies of a row of logits while a token is drawn: logits, weights, and what sums and searches them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """What no formula counts."""

    base: float
    """Of a process before it has a model: interpreter, libraries, the device's context. Bytes."""
    factor: float
    """By how much the allocator holds more than it has given out."""


OVERHEADS = {
    "cpu": Overhead(base=0.44 * GIB, factor=1.085),
    "cuda": Overhead(base=0.8 * GIB, factor=1.06),
}
"""`cpu` is fitted to the six configurations of docs/results/plan.md that are marked so; `cuda` is assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What one process takes."""

    phases: Mapping[str, Mapping[str, float]]
    """Parts of each phase, in bytes."""
    overhead: Overhead
    """On top of the largest."""

    @property
    def worst(self) -> str:
        """The phase that takes most."""
        return max(self.phases, key=lambda name: sum(self.phases[name].values()))

    @property
    def peak(self) -> float:
        """Bytes at the worst moment: base + factor x the largest phase."""
        return self.overhead.base + self.overhead.factor * sum(self.phases[self.worst].values())


def memory_of(setting: Setting, overhead: Overhead | None = None) -> Memory:
    """Every phase of a step of one process.

    Args:
        setting: what is run on what.
        overhead: in place of the kind's own.
    """
    held = held_parts(setting)
    passes = setting.passes()
    phases = {
        "sampling": held | _sampling(setting),
        "scoring": held | _scoring(setting, max(passes, key=lambda each: each.tokens)),
        "training": held | _training(setting, passes),
    }
    if setting.kind == "cpu":
        # The file is mapped, and its pages count until they are let go.
        phases = {"loading": {"weights": 2.0 * setting.weight_bytes * setting.shape.weights}} | phases
    return Memory(phases=phases, overhead=overhead or OVERHEADS[setting.kind])


def weight_bytes(setting: Setting) -> float:
    """The policy's weights as they are held: w each; in 4 bit the linear layers; an adapter in float32."""
    shape, each = setting.shape, setting.weight_bytes
    if setting.lora is None:
        return float(each * shape.weights)
    adapter = 4.0 * shape.adapter_weights(setting.lora)
    if setting.lora.adapter is not None and setting.reference == "shared":
        adapter *= 2  # the one that the run starts from is kept for the reference
    if setting.quantise is None:
        return each * shape.weights + adapter
    packed = bits_per_weight(setting.quantise) / 8 * shape.linear_weights
    return packed + each * (shape.weights - shape.linear_weights) + adapter


def trained(setting: Setting) -> int:
    """Weights that take a gradient."""
    return setting.shape.weights if setting.lora is None else setting.shape.adapter_weights(setting.lora)


def held_parts(setting: Setting) -> dict[str, float]:
    """What is there all the time: weights, AdamW's two averages, reference, critic. Divided by n where sharded."""
    n = setting.processes if setting.sharded else 1
    parts = {"weights": weight_bytes(setting) / n, "optimiser": 8.0 * trained(setting) / n}
    if setting.reference == "here":
        parts["reference"] = float(setting.reference_bytes * setting.shape.weights) / n
    if setting.critic:
        parts["critic"] = (weight_bytes(setting) + 12.0 * trained(setting)) / n
    return parts


def gradients(setting: Setting) -> float:
    """One float32 number for each trained weight; kept until the next update begins, through sampling as well."""
    return 4.0 * trained(setting) / (setting.processes if setting.sharded else 1)


def _gathered(setting: Setting) -> float:
    """All weights once more, where they are divided and have to be together for work without gradient."""
    return weight_bytes(setting) if setting.sharded else 0.0


def _sampling(setting: Setting) -> dict[str, float]:
    shape = setting.shape
    if setting.served:
        return {"gradients": gradients(setting)}
    chunk = max(setting.chunks(), key=lambda each: each.tokens)
    cached = chunk.of_prompts + chunk.responses * chunk.new_tokens
    parts = {
        "gradients": gradients(setting),
        "keys and values": float(setting.key_value_bytes * cached),
        "logits": _DRAWING * 4.0 * chunk.responses * shape.vocabulary,
    }
    if setting.sharded:
        parts["weights put together"] = _gathered(setting)
    linear = shape.linear_weights
    if setting.laid_out and setting.quantise is None:
        parts["weights laid out"] = (2.0 if setting.rounded else 4.0) * linear + 4.0 * shape.head_weights
    elif setting.laid_out:
        parts["weights laid out"] = 4.0 * shape.head_weights  # 4-bit layers stay as they are
    elif setting.lora is not None and setting.weight_bytes == 4 and setting.quantise is None:
        parts["weights laid out"] = 4.0 * linear  # each with the adapter merged in
    if setting.rounded and not setting.laid_out:
        parts["weights in bfloat16"] = 2.0 * linear / shape.layers  # cast layer by layer, without gradient
    if setting.reused:
        parts["layers' outputs"] = _recorded(setting)
        parts["exponentials of logits"] = _masses(setting)
    return parts


def _recorded(setting: Setting) -> float:
    """What the linear layers gave for each token of the batch, where the batch fits one pass; else nothing."""
    tokens = setting.share * (setting.prompt_tokens + setting.group * (setting.new_tokens - 1))
    if tokens > setting.micro_tokens:
        return 0.0
    return 4.0 * setting.shape.layers * sum(each.outputs for each in setting.shape.linears) * tokens


def _masses(setting: Setting) -> float:
    """What is kept of the head, where the layers' outputs are. When the limit is reached, all is let go."""
    kept = setting.share * setting.group * setting.new_tokens * setting.shape.vocabulary
    return 4.0 * min(kept, MASS_ELEMENTS) if setting.masses and _recorded(setting) else 0.0


def _scoring(setting: Setting, largest: Pass) -> dict[str, float]:
    """Old and reference log-probs, without gradient: one layer's tensors at a time, and the head's chunks."""
    shape = setting.shape
    parts = {
        "gradients": gradients(setting),
        "activations": float(
            largest.tokens * 4 * (2 * shape.hidden + 2 * shape.query_width + 3 * shape.intermediate)
        ),
        "logits": 2.0 * _chunk(setting, largest),
    }
    if setting.reference == "resting":
        parts["reference"] = float(setting.reference_bytes * shape.weights)
    if setting.sharded:
        parts["weights put together"] = _gathered(setting)
    return parts


def _training(setting: Setting, passes: list[Pass]) -> dict[str, float]:
    """The larger of two moments: the backward pass begins, with all activations; it ends, with all gradients.

    With several passes the gradients of the first are there when the last begins.
    """
    shape = setting.shape
    largest = max(passes, key=lambda each: activations(setting, each))
    begins = {
        "activations": activations(setting, largest),
        "logits": _head(setting, largest),
    }
    if setting.reused:
        begins["exponentials of logits"] = _masses(setting)
    if setting.rounded:
        layers = 1 if setting.checkpointing else shape.layers
        begins["weights in bfloat16"] = 2.0 * shape.linear_weights * layers / shape.layers
    if setting.sharded:
        # Two layers and what lies outside the layers are together, and the gradient of one.
        layer = setting.weight_bytes * shape.linear_weights / shape.layers
        outside = setting.weight_bytes * (1 if shape.tied else 2) * shape.head_weights
        begins["weights put together"] = 2.0 * layer + outside
    ends = {"gradients": gradients(setting)}
    if setting.lora is None:
        ends["logits"] = (
            4.0 * shape.head_weights
        )  # the embedding's gradient, before it is added to the head's
    if len(passes) > 1:
        return begins | {"gradients": gradients(setting)}
    return max(begins, ends, key=lambda parts: sum(parts.values()))


def _chunk(setting: Setting, one: Pass) -> float:
    """One chunk of logits in float32."""
    row = 4.0 * setting.shape.vocabulary
    return min(max(row, CHUNK), row * one.predictions)


def _head(setting: Setting, one: Pass) -> float:
    """What the head and the last layer need for a moment, beside what is kept.

    Forward two chunks: logits and their exponentials. Backward one, the gradient of the head's weight when it is
    trained, that of the hidden states, and rounded copies of weight and gradient. Then the last layer's: the gradients
    of three feed-forward tensors and two of the residual stream.
    """
    shape, chunk = setting.shape, _chunk(setting, one)
    of_hidden = 4.0 * one.predictions * shape.hidden
    back = chunk + of_hidden
    of_weight = 4.0 * shape.head_weights if setting.lora is None else 0.0
    if setting.rounded:
        back += 0.5 * chunk + 2.0 * shape.head_weights * (2 if setting.lora is None else 1)
    layer = one.tokens * (3.0 * _inner(setting) * shape.intermediate + 8.0 * shape.hidden)
    return max(2.0 * chunk, back + of_weight, of_weight + layer)


def _inner(setting: Setting) -> int:
    """Bytes of a number inside the feed-forward part: 4-bit layers give back the type that they were given."""
    return 2 if setting.weight_bytes == 2 or (setting.rounded and setting.quantise is None) else 4


def activations(setting: Setting, one: Pass) -> float:
    """What is kept from the forward pass for the backward pass."""
    shape = setting.shape
    layer = layer_activations(setting, one)
    outside = (
        one.tokens * 4.0 * shape.hidden * (2 if setting.lora is None and setting.weight_bytes == 2 else 1)
    )
    outside += 4.0 * one.predictions * shape.hidden  # what the head reads
    if setting.checkpointing:
        kept = float(setting.weight_bytes * shape.hidden * one.tokens)  # each layer's input
        return shape.layers * kept + layer + outside
    return shape.layers * layer + outside


def layer_activations(setting: Setting, one: Pass) -> float:
    """The same of one decoder layer."""
    every = sum(token_parts(setting).values())
    return every * one.tokens + _attention(setting, one)


def token_parts(setting: Setting) -> dict[str, float]:
    """What one decoder layer keeps of one token, attention aside.

    - norms: what they read, in float32; where weights are not float32, that divided by its size too when trained.
    - products: what layers with trained weights read. Under autocast, and where an adapter in float32 lies above a base
      in bfloat16, each layer casts a copy of its own.
    - adapter: what lies between its two products.
    - feed-forward: both inputs of the product of gate and up, and what the activation reads, which is one of them where
      both are one operation; without a gate, what the activation reads (a written-out one keeps four tensors).
    """
    shape, lora = setting.shape, setting.lora
    cast = setting.rounded or (lora is not None and setting.weight_bytes == 2)
    size = 2 if setting.rounded else 4
    linears = shape.linears if lora is None else shape.adapted(lora)
    together = shape.silu and _inner(setting) == 4
    tensors = (2 if together else 3) if shape.gated else 4 if shape.tanh else 1
    return {
        "norms": float(sum(shape.norms)) * (8 if lora is None and setting.weight_bytes == 2 else 4),
        "products": float(size * shape.read(linears, apart=cast)),
        "adapter": 0.0 if lora is None else float(size * lora.rank * len(linears)),
        "feed-forward": float(tensors * shape.intermediate * _inner(setting)),
    }


def _attention(setting: Setting, one: Pass) -> float:
    """What one layer's attention keeps.

    FlexAttention: queries, keys, values, its output, and a number for each head. SDPA: prompts attend to themselves
    with keys repeated for each head that shares them; responses of a family have a copy of their queries in the order
    of heads, their keys and values behind a copy of their prompt's, and an additive mask.
    """
    shape, size = setting.shape, 2 if setting.rounded or setting.weight_bytes == 2 else 4
    query, key, normalisers = shape.query_width, shape.key_width, 4 * shape.heads
    if setting.flex:
        return one.tokens * float(size * (2 * query + 2 * key) + normalisers)
    of_prompts = size * (2 * query + 2 * (query if shape.repeat > 1 else key)) + normalisers
    found = float(one.of_prompts * of_prompts)
    computed = one.new_tokens - 1
    if computed:
        reach = one.prompt_tokens + computed
        of_responses = size * (2 * query + 2 * key * reach / computed) + normalisers
        if (
            not setting.rounded
        ):  # the packed row that queries are cut from stays, since prompts' are parts of it
            of_responses += size * (query + (2 * key if shape.repeat == 1 else 0))
        found += one.of_responses * of_responses
        found += one.prompts * size * shape.repeat * computed * reach  # masks
    return found
