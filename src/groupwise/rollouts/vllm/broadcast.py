"""Weights sent from the trainer's memory into that of a server's workers, without a folder between them."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import torch
import torch.distributed

from groupwise.errors import EngineError
from groupwise.rollouts.vllm.client import Client, LostError

if TYPE_CHECKING:
    from torch import Tensor

_dist: Any = torch.distributed  # its types leave out what is used here
_GRACE_SECONDS, _LOOK_SECONDS = 5.0, 1e-4


class Wire:
    """The trainer's end of a process group with all workers of one server. The trainer is rank 0.

    A failure of any kind drops the group; the next use makes a new one with whoever then answers.
    """

    def __init__(self, backend: str, *, device: torch.device, seconds: float) -> None:
        """Nothing is opened yet.

        Args:
            backend: what torch.distributed sends by: nccl between GPUs, gloo between CPUs.
            device: where tensors are when they are sent.
            seconds: how long one side waits for the other to take a tensor.
        """
        self.backend, self.device, self.seconds = backend, device, seconds
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
        group = self._group

        def sent() -> None:
            for tensor in tensors.values():
                there = tensor.detach().to(self.device).contiguous()
                _ended(group.broadcast([there], _from_first(self.seconds)), self.seconds)

        self._both(lambda: client.post("/update_weights", {"update_info": told}), sent)

    def close(self) -> None:
        """Drop the group. NCCL is told to end what is being sent; with gloo that ends after `seconds`, by itself."""
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
        host = own_address(client.base_url)
        try:
            store = _dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=wait)
        except RuntimeError as error:
            raise _not_sent(error) from error
        told = {
            "host": host,
            "port": store.port,
            "size": workers + 1,
            "backend": self.backend,
            "seconds": self.seconds,
        }

        def met() -> Any:
            return _group_of(self.backend, store, workers + 1, wait, self.device)

        self._group = self._both(
            lambda: client.post("/init_weight_transfer_engine", {"init_info": told}), met
        )
        self._store = store

    def _both(self, ask: Callable[[], Any], act: Callable[[], Any]) -> Any:
        """Have the server and this process do their halves at the same time; both have to end well.

        When one has failed, the other is given a few seconds more, and then left alone. What the server says of it is
        what is raised; what `act` gives is returned.
        """
        ends: queue.Queue[tuple[bool, Any, Exception | None]] = queue.Queue()

        def half(of_server: bool, do: Callable[[], Any]) -> None:
            try:
                ends.put((of_server, do(), None))
            except Exception as error:  # raised below
                ends.put((of_server, None, error))

        for of_server, do in ((True, ask), (False, act)):
            threading.Thread(target=half, args=(of_server, do), name="groupwise-push", daemon=True).start()
        first = ends.get()
        try:
            second = ends.get(timeout=None if first[2] is None else _GRACE_SECONDS)
        except queue.Empty:
            second = first
        by_server, by_trainer = sorted((first, second), key=lambda end: not end[0])
        failed = by_server[2] or by_trainer[2]
        if failed is None:
            return by_trainer[1]
        self.close()
        if isinstance(failed, RuntimeError):  # what torch.distributed raises, of every kind
            raise _not_sent(failed) from failed
        raise failed


def transfers_of(client: Client) -> tuple[str, ...]:
    """The ways by which a server says that all of its workers can be given weights; none without our part in them."""
    try:
        answer = client.post("/collective_rpc", {"method": "groupwise_transfers"})
    except (LostError, EngineError):  # vLLM answers 500 when its workers have no such method
        return ()
    listed = answer.get("results", []) if isinstance(answer, dict) else []
    ways = [set(map(str, each)) for each in listed if isinstance(each, list)]
    return tuple(sorted(set.intersection(*ways))) if ways else ()


def own_address(url: str) -> str:
    """The address of this machine on the way to a server, by which that can reach it. Nothing is sent."""
    parts = urlsplit(url)
    try:
        [(family, kind, *_, place), *_] = socket.getaddrinfo(
            parts.hostname, parts.port or 80, type=socket.SOCK_DGRAM
        )
        with socket.socket(family, kind) as towards:
            towards.connect(place)
            return str(towards.getsockname()[0])
    except OSError as error:
        raise LostError(f"no way to {url}: {error}") from error


def _not_sent(error: RuntimeError) -> LostError:
    return LostError(f"the weights could not be sent: {str(error).splitlines()[0]:.200}")


def _group_of(backend: str, store: Any, size: int, wait: timedelta, device: torch.device) -> Any:
    prefixed = _dist.PrefixStore("groupwise", store)
    if backend == "gloo":
        return _dist.ProcessGroupGloo(prefixed, 0, size, wait)
    options = _dist.ProcessGroupNCCL.Options()
    # Torch ends the process where this is over; `_ended` looks to the time here.
    options._timeout = timedelta(days=1)
    group = _dist.ProcessGroupNCCL(prefixed, 0, size, options)
    # NCCL's members meet in what is sent first. That it is not a weight shows who is there at once.
    _ended(
        group.broadcast([torch.zeros(1, device=device)], _from_first(wait.total_seconds())),
        wait.total_seconds(),
    )
    return group


def _ended(work: Any, seconds: float) -> None:
    """Return once something has been sent; raise the RuntimeError that ended it, or that it takes too long."""
    until = time.monotonic() + seconds
    while not work.is_completed():
        if time.monotonic() > until:
            raise RuntimeError(f"a tensor was not taken within {seconds:g} s")
        time.sleep(_LOOK_SECONDS)
    work.wait()


def _from_first(seconds: float) -> Any:
    options = _dist.BroadcastOptions()
    options.rootRank, options.rootTensor = 0, 0
    options.timeout = timedelta(seconds=seconds)
    return options
