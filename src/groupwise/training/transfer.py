"""How a server is given all weights: by a folder, or sent from memory to memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
import torch.distributed as dist

from groupwise.checkpoint.weights import whole_weights
from groupwise.config import RunConfig
from groupwise.config.serving import VllmConfig
from groupwise.errors import ConfigError, EngineError
from groupwise.model.load import resolve_device
from groupwise.model.sharding import divided
from groupwise.rollouts.vllm.broadcast import Wire, transfers_of
from groupwise.rollouts.vllm.client import Client
from groupwise.rollouts.vllm.handover import Sending
from groupwise.rollouts.vllm.server import Given
from groupwise.training.distributed import Ranks

if TYPE_CHECKING:
    from torch import Tensor

    from groupwise.model.load import Policy

Transfer = Literal["folder", "nccl", "gloo"]

LONGEST_SECONDS = 120.0
"""How long trainer and server wait for each other to take a tensor; `timeout_seconds` where that is less."""
_SENTENCES = {
    "folder": "the vLLM server is given all weights by a folder",
    "nccl": "the vLLM server is sent all weights from GPU to GPU, over NCCL",
    "gloo": "the vLLM server is sent all weights from memory to memory, over gloo",
}


def transfer_of(config: RunConfig, ranks: Ranks) -> Transfer:
    """The way that `rollout.vllm.transfer` comes to, before any model is loaded.

    A server that is there is asked whether it can where that decides; the run waits for it as long as it would later.

    Args:
        config: of the run.
        ranks: who train together; the first of them asks.

    Raises:
        ConfigError: it cannot be nccl here.
        EngineError: the server does not answer, or it cannot be given weights in the way that is asked for.
    """
    settings = config.rollout.vllm or VllmConfig()
    asked = settings.transfer
    if config.rollout.engine != "vllm" or asked == "folder" or config.lora is not None:
        return "folder"
    if asked == "gloo" and settings.base_url is None:
        return "gloo"
    on_gpu = (
        asked != "gloo" and resolve_device(config.model.device).type == "cuda" and dist.is_nccl_available()
    )
    if asked == "nccl" and not on_gpu:
        raise ConfigError(
            "rollout.vllm.transfer is nccl, which sends from GPU to GPU, but the trainer is on no CUDA device with "
            "NCCL; set it to auto"
        )
    if settings.base_url is None or (asked == "auto" and not on_gpu):
        return "folder"
    wanted: Transfer = "nccl" if on_gpu else "gloo"
    can = ranks.from_first(lambda: _asked(settings))
    if wanted in can:
        return wanted
    if asked == "auto":
        return "folder"
    raise EngineError(
        f"the vLLM server at {settings.base_url} cannot be sent weights over {wanted} (it can: "
        f"{', '.join(can) or 'nothing, since it runs without groupwise_vllm.py'}); start it as docs/serving.md says, "
        "or set rollout.vllm.transfer to folder"
    )


def _asked(settings: VllmConfig) -> tuple[str, ...]:
    client = Client(Given(settings).open(), settings)
    try:
        return transfers_of(client)
    finally:
        client.close()


def handed_over(config: RunConfig, transfer: Transfer) -> list[str]:
    """What people are told of it at the start."""
    if config.rollout.engine != "vllm":
        return []
    return ["the vLLM server is given the adapter by a folder" if config.lora else _SENTENCES[transfer]]


def sending_of(policy: Policy, ranks: Ranks, transfer: Transfer, settings: VllmConfig) -> Sending | None:
    """How the policy's weights are sent; None where they go by a folder."""
    if transfer == "folder":
        return None
    device = policy.device if transfer == "nccl" else torch.device("cpu")
    wire = Wire(transfer, device=device, seconds=min(settings.timeout_seconds, LONGEST_SECONDS))
    return Sending(copy=lambda: copied(policy, first=ranks.first), sender=wire)


def copied(policy: Policy, *, first: bool) -> dict[str, Tensor]:
    """All weights in the first process's memory, under the names of a Hugging Face checkpoint, tied ones once.

    Every process of a run calls this, since weights that are divided are put together one by one; all but the first
    get nothing.

    Args:
        policy: whose weights they are; trained in full.
        first: this is the first process.
    """
    from transformers.core_model_loading import revert_weight_conversion

    weights = whole_weights(policy)
    if not first:
        return {}
    # As `save_pretrained` does: a model may hold several tensors of a checkpoint as one.
    named = revert_weight_conversion(policy.model, weights)
    live = not divided(policy.model)
    return {name: tensor.detach().to("cpu", copy=live).contiguous() for name, tensor in named.items()}
