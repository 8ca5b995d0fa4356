"""Runs inside a vLLM server: a worker's end of the group in which a trainer sends weights from memory to memory.

As `groupwise_vllm.py` it imports nothing of ours; and nothing of vLLM's, so that it can be tried without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist


class Receiver:
    """A member of the group, of which the trainer is rank 0."""

    def __init__(
        self,
        host: str,
        port: int,
        rank: int,
        size: int,
        backend: str,
        seconds: float,
        device: torch.device | None = None,
    ) -> None:
        """Meet the others.

        Args:
            host: of the trainer.
            port: where its store listens.
            rank: of this worker, from 1 on.
            size: how many there are, the trainer among them.
            backend: nccl or gloo.
            seconds: how long one waits for another.
            device: of this worker, with nccl.
        """
        wait = timedelta(seconds=seconds)
        self.backend, self._wait = backend, wait
        self._store = dist.TCPStore(host, port, is_master=False, timeout=wait)
        prefixed = dist.PrefixStore("groupwise", self._store)
        if backend == "gloo":
            self._group: Any = dist.ProcessGroupGloo(prefixed, rank, size, wait)
        else:
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = wait
            self._group = dist.ProcessGroupNCCL(prefixed, rank, size, options)
            self._group.broadcast([torch.zeros(1, device=device)], self._from_first()).wait()

    def tensors(
        self,
        names: Sequence[str],
        shapes: Sequence[Sequence[int]],
        dtypes: Sequence[str],
        device: torch.device,
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """What the trainer sends, one by one in the order of the names; all have to be taken.

        Args:
            names: of the tensors.
            shapes: of each.
            dtypes: of each, such as bfloat16.
            device: where they arrive with nccl; with gloo that is the processor's memory.
        """
        place = device if self.backend == "nccl" else torch.device("cpu")
        for name, shape, dtype in zip(names, shapes, dtypes, strict=True):
            tensor = torch.empty(tuple(shape), dtype=getattr(torch, dtype), device=place)
            self._group.broadcast([tensor], self._from_first()).wait()
            yield name, tensor

    def _from_first(self) -> Any:
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        options.timeout = self._wait
        return options

    def close(self) -> None:
        """Leave the group."""
        if self.backend == "nccl":
            self._group.abort()
