"""Whether a server that the run starts leaves training its room on the GPU that both use."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from groupwise.errors import ConfigError

SHARE = 0.92
"""Of a GPU's memory, which vLLM 0.32 takes where `--gpu-memory-utilization` is not given (its config/cache.py)."""
_OPTION = "--gpu-memory-utilization"


def refuse_without_room(arguments: Sequence[str], model: torch.nn.Module, *, processes: int) -> None:
    """Refuse a server whose share of the model's GPU and the least that training needs are more than there is.

    Nothing is refused on other devices.

    Args:
        arguments: of the server.
        model: loaded; what it trains is known.
        processes: that train together, and may divide gradients and moments among them.

    Raises:
        ConfigError: says both, and what share would fit.
    """
    device = next(model.parameters()).device
    if device.type != "cuda":
        return
    trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    told = without_room(
        share_of(arguments),
        total=torch.cuda.mem_get_info(device)[1],
        held=torch.cuda.memory_allocated(device),
        # A gradient and AdamW's two moments for each trained weight; activations come on top.
        needed=3 * trained // processes,
    )
    if told is not None:
        raise ConfigError(told)


def share_of(arguments: Sequence[str]) -> float:
    """The share of a GPU that a server of these arguments takes, from 0 to 1; the last one counts."""
    share = SHARE
    words = [word.replace("_", "-") if word.startswith("--") else word for word in arguments]
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == _OPTION:
            try:
                share = float(value if equals else words[i + 1])
            except (IndexError, ValueError):
                continue  # the server itself says what is wrong with it
    return share


def without_room(share: float, *, total: int, held: int, needed: int) -> str | None:
    """What is said where the server's share and training do not fit; None where they may.

    Args:
        share: of the GPU, that the server takes.
        total: bytes of the GPU.
        held: bytes that the model's weights take already.
        needed: bytes that training takes on top at least.
    """
    training = held + needed
    if share * total + training <= total:
        return None
    free = int(100 * (total - training) / total * 0.9) / 100  # a tenth of the rest for activations
    said = (
        f"rollout.vllm: the server takes {share:.0%} of the GPU that training is on ({share * total / 2**30:.1f} of "
        f"{total / 2**30:.1f} GiB), and weights, gradients and AdamW need {training / 2**30:.1f} GiB of it; "
    )
    elsewhere = "start the server by hand on GPUs of its own and give its address as rollout.vllm.base_url"
    if free < 0.05:
        return said + elsewhere
    return f"{said}add {_OPTION}={free:.2f} to rollout.vllm.arguments, or {elsewhere}"
