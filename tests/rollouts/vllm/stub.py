"""Starts the stand-in for a vLLM server, and builds engines that ask it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

PROGRAM = Path(__file__).with_name("stub_server.py")


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
def running(port: int | None = None, *words: str) -> Iterator[Stub]:
    """A stand-in, until the block ends."""
    port = port or free_port()
    process = subprocess.Popen([sys.executable, PROGRAM, "--port", str(port), *words])
    try:
        url = f"http://127.0.0.1:{port}"
        until = time.monotonic() + 120
        while not answers(url):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        yield Stub(url)
    finally:
        process.kill()
        process.wait()


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
