"""A stand-in for a vLLM server, and engines that ask it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from groupwise.model.load import Policy
from groupwise.rollouts.vllm.engine import VllmEngine
from groupwise.training.serving import write_whole
from tests.rollouts.vllm.stub import Stub, alone, engine_at, interpreter, running


@pytest.fixture(scope="session")
def start(build_policy: Callable[..., Policy], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the server begins with: other weights, so that they are no good."""
    folder = tmp_path_factory.mktemp("stub") / "start"
    write_whole(build_policy(9), folder, by=alone)
    return folder


@pytest.fixture(scope="session")
def server(start: Path) -> Iterator[Stub]:
    with running(None, "--model", str(start)) as stub:
        yield stub


@pytest.fixture
def stub(server: Stub) -> Stub:
    """The server, of which nothing has been asked yet, and with which nothing is wrong."""
    server.faults()
    return server


@pytest.fixture
def ask(stub: Stub, policy: Policy, tmp_path: Path) -> Iterator[Callable[..., VllmEngine]]:
    """Builds an engine: `ask(url, policy, **settings)`, closed after the test."""
    built: list[VllmEngine] = []

    def build(url: str = stub.url, of: Policy = policy, **settings: Any) -> VllmEngine:
        built.append(engine_at(url, of, tmp_path / "weights", **settings))
        return built[-1]

    yield build
    for engine in built:
        engine.close()


@pytest.fixture
def python(tmp_path: Path) -> Iterator[str]:
    """In place of an interpreter that has vLLM."""
    with interpreter(tmp_path) as program:
        yield program
