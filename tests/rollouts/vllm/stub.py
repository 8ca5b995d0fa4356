"""Starts the stand-in for a vLLM server, and builds engines that ask it."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import httpx

from groupwise.config.serving import VllmConfig
from groupwise.model.load import Policy
from groupwise.rollouts.vllm.engine import VllmEngine
from groupwise.rollouts.vllm.handover import Handover
from groupwise.rollouts.vllm.server import Given, answers, free_port
from groupwise.training.distributed import ALONE
from groupwise.training.serving import write_lora, write_whole
from groupwise.training.transfer import sending_of
from tests.nursery import nursery
from tests.rollouts.vllm.stub_server import serve

PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys
test = socket.create_connection(("127.0.0.1", {port}))
signal.signal(signal.SIGTERM, lambda *_: test.shutdown(socket.SHUT_WR))
test.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
code = int(test.makefile().readline() or 1)
if code < 0:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
"""Asks the test for a stand-in, and ends as that does; told to end, it has the test end the stand-in first."""


def alone(make: Callable[[], Any]) -> Any:
    return make()


class Stub:
    """A running stand-in."""

    def __init__(self, url: str) -> None:
        self.url = url

    def faults(self, **faults: Any) -> None:
        """What goes wrong from now on; what was asked before is forgotten."""
        assert httpx.post(f"{self.url}/test", json=faults, trust_env=False).is_success

    @property
    def told(self) -> dict[str, Any]:
        """What was asked, and how it was started."""
        told: dict[str, Any] = httpx.get(f"{self.url}/test", trust_env=False).json()
        return told


@contextmanager
def serving(serve: Callable[..., None], given: Any, port: int) -> Iterator[Any]:
    """The process of a function that serves at a port, from when it answers until the block ends."""
    process = nursery().Process(target=serve, args=(given,), daemon=True)
    process.start()
    try:
        until = time.monotonic() + 120
        while not answers(f"http://127.0.0.1:{port}"):
            assert process.is_alive()
            assert time.monotonic() < until
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.join()


@contextmanager
def running(port: int | None = None, *words: str) -> Iterator[Stub]:
    """A stand-in, until the block ends."""
    port = port or free_port()
    with serving(serve, ["--port", str(port), *words], port):
        yield Stub(f"http://127.0.0.1:{port}")


@contextmanager
def interpreter(place: Path) -> Iterator[str]:
    """A program for the place of an interpreter that has vLLM: it starts a stand-in, whatever it is told."""
    program = place / "python"
    with socket.create_server(("127.0.0.1", 0)) as door:
        program.write_text(PROGRAM.format(python=sys.executable, port=door.getsockname()[1]))
        program.chmod(0o755)
        attending = threading.Thread(target=_attend, args=(door,), daemon=True)
        attending.start()
        try:
            yield str(program)
        finally:  # who asks for nothing ends the waiting for the next
            socket.create_connection(door.getsockname()).close()
            attending.join(30)


def _attend(door: socket.socket) -> None:
    """One stand-in after the other: each ends with the program that asked for it, which ends with its exit code."""
    while True:
        asking, _ = door.accept()
        with asking, asking.makefile() as told, suppress(OSError):
            words = told.readline()
            if not words:
                return
            process = nursery().Process(target=serve, args=(json.loads(words),), daemon=True)
            process.start()
            wait([asking, process.sentinel])
            process.kill()
            process.join()
            asking.sendall(f"{process.exitcode}\n".encode())


def engine_at(url: str, policy: Policy, root: Path, **settings: Any) -> VllmEngine:
    """An engine that asks the server at an address, and gives it weights as `transfer` says."""
    config = VllmConfig(base_url=url, **{"retry_seconds": 20.0, **settings})
    return VllmEngine(policy, Given(config), handover_of(policy, root, config), config)


def handover_of(policy: Policy, root: Path, config: VllmConfig | None = None) -> Handover:
    """A handover through a folder, or over gloo where the configuration says so."""
    write = write_lora if policy.lora else write_whole

    def written(folder: Path) -> None:
        write(policy, folder, by=alone)

    transfer = "gloo" if config is not None and config.transfer == "gloo" else "folder"
    sending = sending_of(policy, ALONE, transfer, config or VllmConfig())
    return Handover(root, "test", written, adapter=policy.lora, share=alone, sending=sending)
