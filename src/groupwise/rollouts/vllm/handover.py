"""Handing weights over: written into a folder, loaded from it by the server, and known to both by a label."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from groupwise.errors import EngineError
from groupwise.rollouts.vllm.client import Client, LostError

Share = Callable[[Callable[[], str]], str]
"""Gives every process of a run what the first of them makes, while the others wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """Weights on their way."""

    label: str
    """Names the run, the number of the handover and the version; no other weights have it."""
    folder: Path
    """Where they lie."""


class Handover:
    """Writes the policy's weights, and has a server load them.

    The folder of the last weights stays, so that a server that was lost is given the same ones again, though the
    policy may have been changed since.

    Attributes:
        adapter: a LoRA adapter is handed over instead of all weights.
        last: the weights that the server should have; None before the first.
        share: see `Share`.
    """

    def __init__(
        self, root: Path, run: str, write: Callable[[Path], None], *, adapter: bool, share: Share
    ) -> None:
        """Nothing is written yet.

        Args:
            root: folder that the server sees under the same path.
            run: a word that no other run has.
            write: writes weights into a new folder. Every process of the run calls it; the first one writes.
            adapter: what is written is a LoRA adapter.
            share: see `Share`.
        """
        self.root, self.run, self.adapter = root, run, adapter
        self._write, self.share = write, share
        self._count = 0
        self._before: Parcel | None = None
        self.last: Parcel | None = None

    def pack(self, version: int) -> Parcel:
        """Write the weights as they are.

        Raises:
            EngineError: the folder cannot be written.
        """
        self._count += 1
        label = f"{self.run}-{self._count}-version-{version}"
        parcel = Parcel(label=label, folder=self.root / label)
        try:
            self._write(parcel.folder)
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
