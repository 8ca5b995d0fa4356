"""Weights sent between two processes over gloo: the server's end is the file that runs inside vLLM."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import httpx
import pytest
import torch

from groupwise.config.serving import VllmConfig
from groupwise.errors import EngineError
from groupwise.rollouts.vllm import broadcast
from groupwise.rollouts.vllm.broadcast import Wire, own_address, transfers_of
from groupwise.rollouts.vllm.client import Client, LostError
from groupwise.rollouts.vllm.server import INSIDE, answers, free_port
from tests.rollouts.vllm.stub import serving

TENSORS = {
    "model.embed_tokens.weight": torch.arange(12, dtype=torch.float32).reshape(3, 4) / 7,
    "model.layers.0.weight": torch.arange(6).reshape(2, 3).to(torch.bfloat16),
    "model.layers.0.turned": torch.arange(6, dtype=torch.float32).reshape(2, 3).T,
    "model.norm.weight": torch.tensor([1.5]),
}


class Workers(BaseHTTPRequestHandler):
    """A server's part in it, with something wrong."""

    fault = ""
    paths: ClassVar[list[str]] = []
    digests: ClassVar[dict[str, list[object]]] = {}
    receiver: ClassVar[Any] = None

    def log_message(self, *_: Any) -> None: ...

    def say(self, answer: Any, status: int = 200) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        told = {"paths": self.paths, "digests": self.digests} if self.path == "/held" else {}
        self.say({"world_size": int(self.fault != "none"), **told})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/fault":
            Workers.fault = body["fault"]
            self.paths.clear()
            self.digests.clear()
            return self.say({})
        self.paths.append(self.path)
        return getattr(self, self.path.strip("/"))(body)

    def collective_rpc(self, body: Any) -> None:
        if self.fault == "plain":
            return self.say({"error": {"message": "no such method"}}, 500)
        assert body == {"method": "groupwise_transfers"}
        return self.say({"results": [["folder", "gloo"], ["folder", "nccl", "gloo"]]})

    def init_weight_transfer_engine(self, body: Any) -> None:
        from groupwise_wire import Receiver

        if self.fault == "meets nobody":
            return self.say({"error": {"message": "no engine"}}, 400)
        told = body["init_info"]
        among = told["size"], told["backend"], told["seconds"]
        Workers.receiver = Receiver(told["host"], told["port"], 1, *among)
        return self.say({})

    def update_weights(self, body: Any) -> None:
        if self.fault == "refuses":
            return self.say({"error": {"message": "no such tensor"}}, 400)
        if self.fault == "stops":
            time.sleep(0.5)
            return self.say({"error": {"message": "a worker stopped"}}, 500)
        if self.fault == "sleeps":
            time.sleep(60)
        told = body["update_info"]
        lists = told["names"], told["shapes"], told["dtypes"]
        for name, tensor in self.receiver.tensors(*lists, torch.device("cpu")):
            if self.fault == "dies":
                os._exit(9)
            self.digests[name] = digest(tensor)
        return self.say({})


def serve(port: int) -> None:
    sys.path.insert(0, str(INSIDE))
    ThreadingHTTPServer(("127.0.0.1", port), Workers).serve_forever()


@pytest.fixture(scope="module")
def worker() -> Iterator[Callable[[str], Client]]:
    """A worker with a fault; the same process for all, until it has died of it."""
    clients: list[Client] = []
    with ExitStack() as until_the_end:

        def with_fault(fault: str) -> Client:
            if not clients or not answers(clients[-1].base_url):
                port = free_port()
                until_the_end.enter_context(serving(serve, port, port))
                url = f"http://127.0.0.1:{port}"
                clients.append(Client(url, VllmConfig(base_url=url, timeout_seconds=60)))
                until_the_end.callback(clients[-1].close)
            clients[-1].post("/fault", {"fault": fault})
            return clients[-1]

        yield with_fault


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The half that is left waits for the other no longer than it has to here."""
    monkeypatch.setattr(broadcast, "_GRACE_SECONDS", 0.5)


def wire(seconds: float = 10.0) -> Wire:
    return Wire("gloo", device=torch.device("cpu"), seconds=seconds)


def held(client: Client) -> dict[str, dict[str, list[object]]]:
    told: dict[str, dict[str, list[object]]] = httpx.get(f"{client.base_url}/held", trust_env=False).json()
    return told


def digest(tensor: torch.Tensor) -> list[object]:
    data = tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return [str(tensor.dtype), list(tensor.shape), hashlib.sha256(data).hexdigest()]


def test_what_arrives_is_bit_for_bit_what_was_sent(worker: Callable[[str], Client]) -> None:
    client, sender = worker("nothing"), wire()
    sender.send(client, TENSORS)
    assert json.dumps(held(client)["digests"]) == json.dumps({n: digest(t) for n, t in TENSORS.items()})
    sender.send(client, {"model.norm.weight": torch.tensor([2.5])})
    assert held(client)["digests"]["model.norm.weight"] == digest(torch.tensor([2.5]))
    # The group is made once.
    assert held(client)["paths"] == ["/init_weight_transfer_engine", "/update_weights", "/update_weights"]


def test_a_worker_that_dies_on_the_way_is_noticed_and_its_successor_given_all(
    worker: Callable[[str], Client],
) -> None:
    sender = wire()
    with pytest.raises(LostError):
        sender.send(worker("dies"), TENSORS)
    after = worker("nothing")
    sender.send(after, TENSORS)
    assert len(held(after)["digests"]) == len(TENSORS)


@pytest.mark.parametrize(("fault", "seconds", "within"), [("stops", 60.0, 15.0), ("sleeps", 3.0, 20.0)])
def test_what_nobody_takes_ends(
    worker: Callable[[str], Client], fault: str, seconds: float, within: float
) -> None:
    """At once when the server says so, else when a tensor was waited for; 64 MB are more than a socket keeps."""
    client, sender = worker(fault), wire(seconds)
    began = time.monotonic()
    with pytest.raises(LostError, match=r"a worker stopped" if fault == "stops" else r"could not be sent"):
        sender.send(client, {"big": torch.zeros(1 << 24)})
    assert time.monotonic() - began < within


def test_a_server_that_refuses_to_meet_is_not_waited_for(worker: Callable[[str], Client]) -> None:
    client, sender = worker("meets nobody"), wire(60.0)
    began = time.monotonic()
    with pytest.raises(EngineError, match="refuses /init_weight_transfer_engine: no engine"):
        sender.send(client, TENSORS)
    assert time.monotonic() - began < 15


def test_who_can_be_sent_weights_says_so(worker: Callable[[str], Client]) -> None:
    """All workers have to; one without our part answers 500, as vLLM does."""
    assert transfers_of(worker("nothing")) == ("folder", "gloo")
    assert transfers_of(worker("plain")) == ()


def test_the_address_towards_a_server() -> None:
    assert own_address("http://127.0.0.1:8000") == "127.0.0.1"
    with pytest.raises(LostError, match=r"no way to http://nowhere\.invalid:80"):
        own_address("http://nowhere.invalid:80")


def test_a_refusal_is_told_in_the_servers_words(worker: Callable[[str], Client]) -> None:
    with pytest.raises(EngineError, match="refuses /update_weights: no such tensor"):
        wire().send(worker("refuses"), TENSORS)


def test_a_server_without_workers_is_refused(worker: Callable[[str], Client]) -> None:
    with pytest.raises(EngineError, match="does not say how many workers"):
        wire().send(worker("none"), TENSORS)
