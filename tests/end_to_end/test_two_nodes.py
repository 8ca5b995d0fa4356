"""Two nodes, as two network namespaces of one machine: they train together, and one outlives the other long enough to
say what happened."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupwise.records.metrics_file import read_metrics
from tests.end_to_end.test_launchers import alone, project, wait_for
from tests.training.test_distributed import same_metrics, same_model

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

ENDS_WITHIN = 30.0
"""Seconds from the loss of a node to the end of everything on the other; docs/scaling.md states it."""


class Node:
    """A network namespace with an address of its own."""

    def __init__(self, name: str, address: str, device: str) -> None:
        self.name, self.address, self.device = name, address, device

    def torchrun(
        self, place: Path, number: int, port: int, *words: str, **environment: str
    ) -> subprocess.Popen[str]:
        """Start this node's part of a run of two nodes with a process each; the first node's address is 10.77.0.1."""
        launcher = (
            f"ip netns exec {self.name} {sys.executable} -m torch.distributed.run --nnodes 2 --nproc-per-node 1 "
            f"--node-rank {number} --master-addr 10.77.0.1 --master-port {port} -m groupwise"
        )
        return subprocess.Popen(
            [*launcher.split(), *words],
            cwd=place,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": self.device, **environment},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def processes(self) -> list[int]:
        said = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=True)
        return [int(word) for word in said.stdout.split()]

    def kill(self) -> None:
        """All at once, as when a machine loses its power."""
        for number in self.processes():
            os.kill(number, signal.SIGKILL)


def _ip(*words: str) -> None:
    said = subprocess.run(["ip", *words], capture_output=True, text=True)
    if said.returncode:
        pytest.skip(f"network namespaces are not allowed here: ip {' '.join(words)}: {said.stderr.strip()}")


@pytest.fixture
def nodes() -> Iterator[tuple[Node, Node]]:
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need `ip` and root")
    tag = f"{os.getpid() % 10000:04d}"
    one = Node(f"gwA{tag}", "10.77.0.1", f"vA{tag}")
    two = Node(f"gwB{tag}", "10.77.0.2", f"vB{tag}")
    try:
        for node in (one, two):
            _ip("netns", "add", node.name)
            _ip("-n", node.name, "link", "set", "lo", "up")
        _ip(
            "link",
            "add",
            one.device,
            "netns",
            one.name,
            "type",
            "veth",
            "peer",
            "name",
            two.device,
            "netns",
            two.name,
        )
        for node in (one, two):
            _ip("-n", node.name, "addr", "add", f"{node.address}/24", "dev", node.device)
            _ip("-n", node.name, "link", "set", node.device, "up")
        yield one, two
    finally:
        for node in (one, two):
            if subprocess.run(["ip", "netns", "pids", node.name], capture_output=True).returncode == 0:
                node.kill()
            subprocess.run(["ip", "netns", "del", node.name], capture_output=True, check=False)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = project(tmp_path_factory.mktemp("one"))
    alone(place, "train", "config.yaml")
    return place / "run"


def test_two_nodes_train_as_one_process_does(nodes: tuple[Node, Node], one: Path, tmp_path: Path) -> None:
    place = project(tmp_path / "p", "fsdp2")
    running = [node.torchrun(place, i, 29611, "train", "config.yaml") for i, node in enumerate(nodes)]
    said = [process.communicate(timeout=300)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    same_metrics(place / "run", one)
    same_model(place / "run", one)


def test_a_node_is_lost_in_the_middle_of_a_step(nodes: tuple[Node, Node], one: Path, tmp_path: Path) -> None:
    place = project(tmp_path / "p")
    running = [
        # The first node scores, and takes its time over the third step, while the second waits.
        node.torchrun(place, i, 29612, "train", "config.yaml", SLOW_STEP="2", SLOW_SECONDS="5")
        for i, node in enumerate(nodes)
    ]
    wait_for(place / "slow.txt")
    started = time.monotonic()
    nodes[1].kill()
    said, _ = running[0].communicate(timeout=120)
    seconds = time.monotonic() - started
    assert running[0].returncode != 0
    assert seconds < ENDS_WITHIN
    assert nodes[0].processes() == []
    assert "rank 0 of 2 ends, since it lost the others" in said, said
    assert "go on with --resume" in said
    assert len(read_metrics(place / "run" / "metrics.jsonl")) == 2
    running[1].communicate()
    alone(place, "train", "--resume", "run")
    same_metrics(place / "run", one)
    same_model(place / "run", one)
