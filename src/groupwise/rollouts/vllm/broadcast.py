"""Weights sent from the trainer's memory into that of a server's workers, without a folder between them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from groupwise.errors import EngineError
from groupwise.rollouts.vllm.client import Client, LostError

if TYPE_CHECKING:
    from torch import Tensor

BACKENDS = ("nccl", "gloo")
"""What torch.distributed sends by: `nccl` between GPUs, `gloo` between CPUs."""


class Wire:
    """The trainer's end of a process group with all workers of one server. The trainer is rank 0.

    A failure of any kind drops the group; the next use makes a new one with whoever then answers.
    """

    def __init__(self, backend: str, *, host: str, device: torch.device, seconds: float) -> None:
        """Nothing is opened yet.

        Args:
            backend: one of `BACKENDS`.
            host: address of this machine, as the server's workers reach it.
            device: where tensors are when they are sent.
            seconds: how long one side waits for the other.
        """
        self.backend, self.host, self.device, self.seconds = backend, host, device, seconds
        self._group: Any = None
        self._store: Any = None

    def send(self, client: Client, tensors: Mapping[str, Tensor]) -> None:
        """Send tensors, one by one in their order, within an update that has been started.

        Args:
            client: of the server.
            tensors: under the names of a Hugging Face checkpoint, tied ones once, on any device.

        Raises:
            LostError: some worker has not got all of them; the server's weights are then of no version.
            EngineError: the server refuses.
        """
        told = {
            "names": list(tensors),
            "shapes": [list(tensor.shape) for tensor in tensors.values()],
            "dtypes": [str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()],
        }
        if self._group is None:
            self._open(client)

        def sent() -> None:
            for tensor in tensors.values():
                there = tensor.detach().to(self.device).contiguous()
                self._group.broadcast([there], _from_first(self.seconds)).wait()
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)

        self._both(lambda: client.post("/update_weights", {"update_info": told}), sent)

    def close(self) -> None:
        """Drop the group; what is still being sent ends with an error where the backend can end it."""
        group, self._group, self._store = self._group, None, None
        if group is not None and self.backend == "nccl":
            group.abort()

    def _open(self, client: Client) -> None:
        answer = client.get("/get_world_size")
        workers = int(answer.get("world_size", 0)) if isinstance(answer, dict) else 0
        if workers < 1:
            raise EngineError(
                f"the vLLM server at {client.base_url} does not say how many workers it has; vLLM 0.32 is what this "
                "was written for"
            )
        wait = timedelta(seconds=self.seconds)
        self._store = dist.TCPStore(self.host, 0, is_master=True, wait_for_workers=False, timeout=wait)
        told = {
            "host": self.host,
            "port": self._store.port,
            "size": workers + 1,
            "backend": self.backend,
            "seconds": self.seconds,
        }

        def met() -> None:
            self._group = _group_of(self.backend, self._store, workers + 1, wait)

        self._both(lambda: client.post("/init_weight_transfer_engine", {"init_info": told}), met)

    def _both(self, ask: Callable[[], Any], act: Callable[[], None]) -> None:
        """Have the server and this process do their halves at the same time; both have to end well."""
        failed: list[Exception] = []

        def asked() -> None:
            try:
                ask()
            except (LostError, EngineError) as error:
                failed.append(error)

        thread = threading.Thread(target=asked, name="groupwise-push", daemon=True)
        thread.start()
        try:
            act()
        except RuntimeError as error:  # what torch.distributed raises, of every kind
            self.close()
            thread.join(self.seconds)
            raise failed[0] if failed else LostError(_first_line(error)) from error
        thread.join()
        if failed:
            self.close()
            raise failed[0]


def _group_of(backend: str, store: Any, size: int, wait: timedelta) -> Any:
    prefixed = dist.PrefixStore("groupwise", store)
    if backend == "gloo":
        return dist.ProcessGroupGloo(prefixed, 0, size, wait)
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = wait
    return dist.ProcessGroupNCCL(prefixed, 0, size, options)


def _from_first(seconds: float) -> Any:
    options = dist.BroadcastOptions()
    options.rootRank, options.rootTensor = 0, 0
    options.timeout = timedelta(seconds=seconds)
    return options


def _first_line(error: Exception) -> str:
    return f"the weights could not be sent: {str(error).splitlines()[0]:.200}"
