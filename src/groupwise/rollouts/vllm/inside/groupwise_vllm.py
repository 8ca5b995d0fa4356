"""Runs inside a vLLM server: loads the weights that a trainer has written into a folder.

Imported by vLLM's workers alone (`--worker-extension-cls groupwise_vllm.Extension`), in an environment that has vLLM
and not this package: so it imports nothing of ours, and its folder holds nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
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
    """Nothing has to be agreed on beforehand."""


@dataclass
class Update(WeightTransferUpdateInfo):
    """What one update is made from."""

    folder: str
    """Holds safetensors files under the names of a Hugging Face checkpoint."""


class FolderEngine(WeightTransferEngine):
    """Reads weights from a folder, by vLLM's own way from a checkpoint's names and shapes to its layers'."""

    init_info_cls = Init
    update_info_cls = Update

    def init_transfer_engine(self, init_info: Init) -> None:
        """Nothing to do."""

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
        with torch.no_grad():
            self.model.load_weights(_tensors(Path(update_info.folder)))

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
        """Nothing is held."""


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
    """Makes vLLM import this file in its workers; adds nothing to them."""


WeightTransferEngineFactory.register_engine(BACKEND, FolderEngine)
