"""Seconds of a step from counts of products and bytes: docs/plan.md states each formula and what is assumed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from groupwise.workbench.planning.devices import NETWORK_GB_PER_SECOND, Device, Layout
from groupwise.workbench.planning.memory import trained, weight_bytes
from groupwise.workbench.planning.pipeline import Stages
from groupwise.workbench.planning.settings import Pass, Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Which share of what a device can do is reached, and what each layer costs before it computes. Assumed."""

    products: float
    """Of its rate of products, over whole passes."""
    reading: float
    """Of its memory's bandwidth, while one token per row is computed."""
    layer_seconds: float
    """Starting the kernels of one layer from Python."""


REACHED = {
    "cuda": Reached(products=0.4, reading=0.6, layer_seconds=0.7e-3),
    "cpu": Reached(products=0.6, reading=0.6, layer_seconds=0.15e-3),
}


def stages_of(
    setting: Setting,
    device: Device,
    layout: Layout,
    *,
    reward_seconds: float = 0.0,
    samplers: int | None = None,
    apart: bool = False,
) -> Stages:
    """What the parts of a step take.

    Args:
        setting: what is run.
        device: on what.
        layout: how many train.
        reward_seconds: what scoring a batch takes.
        samplers: devices that sample; those that train by default.
        apart: they are other devices, to which weights are sent in bfloat16.
    """
    return Stages(
        generate=generate_seconds(setting, device, samplers, apart=apart),
        reward=reward_seconds,
        train=train_seconds(setting, device, layout),
        push=_push(setting, device, layout) if apart else 0.0,
    )


def generate_seconds(
    setting: Setting, device: Device, samplers: int | None = None, *, apart: bool = False
) -> float:
    """Prompts are computed at the rate of products; then each new token of all rows waits for the slowest of three.

    Reading the weights and the keys and values, computing the products, and starting the kernels.

    Args:
        setting: what is run.
        device: on what.
        samplers: devices among which the prompts are divided; those that train by default.
        apart: they hold all weights, also where those that train divide them.
    """
    setting = replace(setting, processes=samplers or setting.processes)
    shape, reached = setting.shape, REACHED[device.kind]
    rate = _rate(setting, device)
    read = reached.reading * device.bandwidth
    seconds = 0.0
    for chunk in setting.chunks():
        prompts = 2.0 * chunk.of_prompts * shape.linear_weights
        prompts += 2.0 * shape.query_width * shape.layers * chunk.prompts * float(chunk.prompt_tokens) ** 2
        seconds += prompts / rate
        cached = chunk.of_prompts + chunk.responses * chunk.new_tokens / 2
        moved = _weights_read(setting) + setting.key_value_bytes * cached
        computed = 2.0 * chunk.responses * (shape.linear_weights + shape.head_weights)
        computed += 4.0 * shape.query_width * shape.layers * chunk.responses * (cached / chunk.responses)
        each = max(moved / read, computed / rate, shape.layers * reached.layer_seconds)
        seconds += chunk.new_tokens * each
    if setting.sharded and not apart:
        seconds += weight_bytes(setting) / device.link
    return seconds


def _weights_read(setting: Setting) -> float:
    """Bytes that one token of all rows moves for the weights.

    Rounded on the fly each weight is read in float32, written and read again in bfloat16: 8 bytes. In 4 bit it is read
    packed, written and read unpacked.
    """
    shape = setting.shape
    head = float((4 if setting.weight_bytes == 4 else 2) * shape.head_weights)
    if setting.quantise is not None:
        return 0.52 * shape.linear_weights + 4.0 * shape.linear_weights + head
    if setting.laid_out:
        return (2.0 if setting.rounded else 4.0) * shape.linear_weights + head
    return (8.0 if setting.rounded else float(setting.weight_bytes)) * shape.linear_weights + head


def train_seconds(setting: Setting, device: Device, layout: Layout) -> float:
    """Scoring without gradient, forward and backward passes, exchange of gradients, and the optimiser."""
    rate = _rate(setting, device)
    passes = setting.passes()
    forward = sum(_forward(setting, one) for one in passes) * setting.mini_batches
    head = sum(2.0 * one.predictions * setting.shape.head_weights for one in passes) * setting.mini_batches
    scored = 0
    if setting.reference != "none":
        scored += 1
    if setting.trainer_scores:
        scored += 1
    # The gradient of what a layer reads is as much again, that of its weight once more when it is trained.
    back = 2 if setting.lora is None else 1
    times = 1 + back + setting.checkpointing
    products = scored * (forward + head)
    products += setting.passes_over_batch * (times * forward + (2 + back) * head)
    updates = setting.passes_over_batch * setting.mini_batches
    moved = 28.0 * trained(setting) / (setting.processes if setting.sharded else 1)  # read 16, written 12
    seconds = products / rate + updates * moved / (REACHED[device.kind].reading * device.bandwidth)
    if setting.reference == "resting":
        seconds += setting.reference_bytes * setting.shape.weights / 25e9  # over the bus to the card
    return seconds + updates * _exchange(setting, device, layout, len(passes))


def _forward(setting: Setting, one: Pass) -> float:
    """Operations of the layers: 2 for each weight and token, 4 for each pair of tokens, feature and layer."""
    shape = setting.shape
    p, t = float(one.prompt_tokens), float(one.new_tokens - 1)
    pairs = one.prompts * p * p / 2 + one.responses * t * (p + t / 2)
    return 2.0 * one.tokens * shape.linear_weights + 4.0 * pairs * shape.query_width * shape.layers


def _exchange(setting: Setting, device: Device, layout: Layout, passes: int) -> float:
    """Gradients added up around a ring; or weights gathered twice and gradients scattered in every pass."""
    n = setting.processes
    if n == 1:
        return 0.0
    link = device.link if layout.nodes == 1 else min(device.link, NETWORK_GB_PER_SECOND * 1e9)
    share = (n - 1) / n
    if setting.sharded:
        return passes * share * (2 * weight_bytes(setting) + 4.0 * trained(setting)) / link
    return 2 * share * 4.0 * trained(setting) / link


def _push(setting: Setting, device: Device, layout: Layout) -> float:
    """All weights, or the adapter alone, in bfloat16."""
    link = device.link if layout.nodes == 1 else min(device.link, NETWORK_GB_PER_SECOND * 1e9)
    return 2.0 * trained(setting) / link


def _rate(setting: Setting, device: Device) -> float:
    """Operations per second that are reached in the precision of the products."""
    half = setting.rounded or setting.weight_bytes == 2
    full = device.bfloat16_flops if half and device.bfloat16_flops is not None else device.float32_flops
    return REACHED[device.kind].products * full
