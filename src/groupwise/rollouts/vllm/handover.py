"""Handing weights over: by a folder that the server loads, or sent to it; known to both by a label."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from groupwise.errors import EngineError
from groupwise.rollouts.vllm.client import Client, LostError

if TYPE_CHECKING:
    from torch import Tensor

Share = Callable[[Callable[[], str]], str]
"""Gives every process of a run what the first of them makes, while the others wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """Weights on their way."""

    label: str
    """Names the run, the number of the handover and the version; no other weights have it."""
    folder: Path
    """Where they lie, unless they are sent."""
    tensors: Mapping[str, Tensor] | None = None
    """A copy of what is to be sent; empty in all but the first process of a run. None: they lie in the folder."""


class Sender(Protocol):
    """Sends weights to a server; see `broadcast.Wire`."""

    def send(self, client: Client, tensors: Mapping[str, Tensor]) -> None:
        """Send all of them.

        Raises:
            LostError: some worker has not got them.
            EngineError: the server refuses.
        """
        ...

    def close(self) -> None:
        """Leave the server alone."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """Weights that are sent, not written."""

    copy: Callable[[], Mapping[str, Tensor]]
    """The weights as they are; later updates leave them alone. Every process of the run calls it."""
    sender: Sender


class Handover:
    """Writes or copies the policy's weights, and has a server take them.

    The folder or copy of the last weights stays, so that a server that was lost is given the same ones again, though
    the policy may have been changed since.

    Attributes:
        adapter: a LoRA adapter is handed over instead of all weights.
        last: the weights that the server should have; None before the first.
        share: see `Share`.
    """

    def __init__(
        self,
        root: Path,
        run: str,
        write: Callable[[Path], None],
        *,
        adapter: bool,
        share: Share,
        sending: Sending | None = None,
    ) -> None:
        """Nothing is written yet.

        Args:
            root: folder that the server sees under the same path.
            run: a word that no other run has.
            write: writes weights into a new folder. Every process of the run calls it; the first one writes.
            adapter: what is written is a LoRA adapter.
            share: see `Share`.
            sending: how weights are sent in place of being written; None: they are written.
        """
        self.root, self.run, self.adapter = root, run, adapter
        self._write, self.share, self._sending = write, share, sending
        self._count = 0
        self._before: Parcel | None = None
        self.last: Parcel | None = None

    def pack(self, version: int) -> Parcel:
        """Write or copy the weights as they are.

        Raises:
            EngineError: the folder cannot be written.
        """
        self._count += 1
        label = f"{self.run}-{self._count}-version-{version}"
        folder = self.root / label
        if self._sending is not None:
            self._before = self.last = None  # a copy is as big as the model
            self.last = Parcel(label=label, folder=folder, tensors=self._sending.copy())
            return self.last
        parcel = Parcel(label=label, folder=folder)
        try:
            self._write(folder)
        except OSError as error:
            raise EngineError(
                f"the weights for the vLLM server cannot be written to {self.root}: {error.strerror or error}; free "
                "some space, or name another folder with rollout.vllm.weights_dir"
            ) from error
        self._before, self.last = self.last, parcel
        return parcel

    def deliver(self, client: Client) -> None:
        """Have the server load the last weights, and make sure that it has them.

        Raises:
            LostError: it could not; another attempt may do better.
            EngineError: it refuses.
        """
        assert self.last is not None
        if self.adapter:
            self._deliver_adapter(client, self.last)
        else:
            self._deliver_all(client, self.last)
        if self._before is not None:
            shutil.rmtree(self._before.folder, ignore_errors=True)
            self._before = None

    def close(self) -> None:
        """Leave the server alone."""
        if self._sending is not None:
            self._sending.sender.close()

    def held_by(self, client: Client) -> bool:
        """True when the server has the last weights.

        Raises:
            LostError: it does not answer.
        """
        assert self.last is not None
        if self.adapter:
            return self.last.label in _models(client)
        return _label(client) == self.last.label

    def _deliver_all(self, client: Client, parcel: Parcel) -> None:
        # What is still being sampled is of weights that nobody wants any more, and so are its keys and values.
        client.post("/pause?mode=abort&clear_cache=true")
        client.post("/start_weight_update")
        if self._sending is not None and parcel.tensors is not None:
            self._sending.sender.send(client, parcel.tensors)
        else:
            client.post("/update_weights", {"update_info": {"folder": str(parcel.folder)}})
        client.post("/finish_weight_update", {"weight_version": parcel.label})
        client.post("/reset_prefix_cache")
        client.post("/resume")
        found = _label(client)
        if found != parcel.label:
            raise LostError(f"it was given the weights {parcel.label}, and says that it has {found}")

    def _deliver_adapter(self, client: Client, parcel: Parcel) -> None:
        if parcel.label not in _models(client):
            client.post("/v1/load_lora_adapter", {"lora_name": parcel.label, "lora_path": str(parcel.folder)})
        if parcel.label not in _models(client):
            raise LostError(f"it was given the adapter {parcel.label}, and does not list it")
        if self._before is not None:
            with suppress(LostError, EngineError):  # a server that was started anew never had it
                client.post("/v1/unload_lora_adapter", {"lora_name": self._before.label})


def _label(client: Client) -> str:
    answer = client.get("/weight_info")
    return str(answer.get("weight_version", "")) if isinstance(answer, dict) else ""


def _models(client: Client) -> list[str]:
    answer = client.get("/v1/models")
    listed = answer.get("data", []) if isinstance(answer, dict) else []
    return [str(each.get("id", "")) for each in listed if isinstance(each, dict)]
