"""Both ways of isolation, where this machine has them, and something outside that no program may touch."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import SandboxError
from groupwise.rewards.sandbox.cell import check, tree
from groupwise.rewards.sandbox.pool import close_pools

HERE = Path(__file__).parent


def rows(name: str) -> list[Any]:
    """The rows of a file beside this, named by their ids."""
    read = [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]
    return [pytest.param(row, id=row.get("id", row.get("name"))) for row in read]


def ways(*, weaker: bool = True) -> list[Any]:
    """The isolations to test with; `weaker=False` leaves the weaker one to the longer tests."""
    marks = [] if weaker else [pytest.mark.long]
    return [pytest.param("bubblewrap"), pytest.param("restricted", marks=marks)]


@pytest.fixture
def isolation(request: pytest.FixtureRequest) -> str:
    """The isolation that this test is for; skipped, with what is missing, on a machine that has it not."""
    try:
        check(request.param, None)
    except SandboxError as error:
        pytest.skip(f"no isolation by {request.param} on this machine: {error}")
    return str(request.param)


@pytest.fixture
def canaries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A variable, a file and three listeners; afterwards the file is unchanged, and nobody has called.

    The cases spell the file and the ports, so that test runs on one machine take turns.
    """
    monkeypatch.setenv("SANDBOX_CANARY", "of the host")
    turn = os.open("/tmp/groupwise-canaries.lock", os.O_RDWR | os.O_CREAT, 0o666)
    fcntl.flock(turn, fcntl.LOCK_EX)
    file = Path("/tmp/sandbox_canary.txt")
    file.write_text("known")
    with (
        socket.socket() as tcp,
        socket.socket(type=socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tcp.bind(("127.0.0.1", 45871))
        udp.bind(("127.0.0.1", 45872))
        abstract.bind("\0groupwise-canary")
        tcp.listen()
        abstract.listen()
        yield
        for one in (tcp, udp, abstract):
            one.settimeout(0.0)
        for knock in (tcp.accept, abstract.accept, lambda: udp.recv(1)):
            with pytest.raises(BlockingIOError):
                knock()
    assert file.read_text() == "known"
    file.unlink()
    os.close(turn)


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """After a module's tests its sandboxes are gone, with all that ran in them."""
    before = set(tree(os.getpid()))  # workers of other rewards, which stay for the process's life
    yield
    close_pools()
    assert set(tree(os.getpid())) <= before
