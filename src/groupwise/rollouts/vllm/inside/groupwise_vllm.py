"""Runs inside a vLLM server: loads the weights that a trainer has written into a folder, or sends.

Imported by vLLM's workers alone (`--worker-extension-cls groupwise_vllm.Extension`), in an environment that has vLLM
and not this package: so it imports nothing of ours but the file beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from groupwise_wire import Receiver
from safetensors import safe_open
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)

BACKEND = "groupwise"
"""Name in `--weight-transfer-config`."""


@dataclass
class Init(WeightTransferInitInfo):
    """How the group is joined in which weights are sent; for a folder nothing has to be agreed on beforehand."""

    host: str
    port: int
    size: int
    backend: str
    seconds: float


@dataclass
class Update(WeightTransferUpdateInfo):
    """What one update is made from."""

    folder: str | None = None
    """Holds safetensors files under the names of a Hugging Face checkpoint; None: they are sent."""
    names: list[str] = field(default_factory=list)
    shapes: list[list[int]] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)


class TrainerEngine(WeightTransferEngine):
    """Takes weights from a folder or from the trainer's memory.

    It is vLLM's own way from a checkpoint's names and shapes to its layers'.
    """

    init_info_cls = Init
    update_info_cls = Update

    receiver: Receiver | None = None
    """This worker's end of the group in which weights are sent."""

    def init_transfer_engine(self, init_info: Init) -> None:
        """Join the group of a trainer, and leave that of an earlier one."""
        self.shutdown()
        given = self.parallel_config
        rank = 1 + given.data_parallel_index * given.world_size + given.rank
        self.receiver = Receiver(
            init_info.host,
            init_info.port,
            rank,
            init_info.size,
            init_info.backend,
            init_info.seconds,
            self.device,
        )

    def start_weight_update(self) -> None:
        """Bring the layers back to the form in which a checkpoint is loaded."""
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load a folder. vLLM's own method waits for an accelerator afterwards, which a CPU has not."""
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: Update) -> None:
        """See `update_weights`."""
        if update_info.folder is not None:
            given = _tensors(Path(update_info.folder))
        elif self.receiver is not None:
            told = update_info.names, update_info.shapes, update_info.dtypes
            given = self.receiver.tensors(*told, self.device)
        else:
            raise RuntimeError("weights are to be sent, but no group was joined in which they are")
        with torch.no_grad():
            self.model.load_weights(given)
            for name, _ in given:
                raise RuntimeError(f"{name} was sent, and the model took no more")

    def finish_weight_update(self) -> None:
        """Bring the layers into the form that computes.

        On a CPU vLLM computes with packed copies of the weights. A head that is tied to the embedding takes no part in
        the reload, so that its copy would stay the old one, without a word; it is packed again here.
        """
        finalize_layerwise_reload(self.model, self.model_config)
        head = getattr(self.model, "lm_head", None)
        tied = getattr(self.model_config.hf_text_config, "tie_word_embeddings", False)
        method = getattr(head, "quant_method", None)
        if tied and method is not None and self.device.type == "cpu":
            method.process_weights_after_loading(head)

    def shutdown(self) -> None:
        """Leave the group, where one was joined."""
        receiver, self.receiver = self.receiver, None
        if receiver is not None:
            receiver.close()


def _tensors(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(
            f"{folder} holds no safetensors file; does this machine see the trainer's folder?"
        )
    for file in files:
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - not a mapping
                yield name, opened.get_tensor(name)


class Extension:
    """Makes vLLM import this file in its workers, and tells a trainer that it is there."""

    def groupwise_transfers(self) -> list[str]:
        """The ways by which this worker can be given weights."""
        on_gpu = torch.cuda.is_available() and torch.distributed.is_nccl_available()
        return ["folder", "gloo", *(["nccl"] if on_gpu else [])]


WeightTransferEngineFactory.register_engine(BACKEND, TrainerEngine)
