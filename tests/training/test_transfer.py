"""Which way weights take to a server, decided before a model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from groupwise.config import load
from groupwise.errors import ConfigError, EngineError
from groupwise.model.tiny import build_tiny
from groupwise.records.run_folder import read_manifest
from groupwise.training import transfer
from groupwise.training.distributed import ALONE
from groupwise.training.loop import train
from groupwise.training.setup import Run
from groupwise.training.transfer import transfer_of
from tests.rollouts.vllm.stub import Stub, running
from tests.training.ranks import STEPS
from tests.training.test_distributed import same_metrics, trained

URL = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of no worth, for a server that is to be sent others."""
    folder = tmp_path_factory.mktemp("start")
    model, _ = build_tiny(seed=9)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def server(start: Path) -> Iterator[Stub]:
    with running(None, "--model", str(start)) as stub:
        yield stub


def chosen(device: str = "auto", **settings: Any) -> str:
    tree = {"model": {"device": device}, "rollout": {"engine": "vllm", "vllm": settings}}
    return transfer_of(load(tree).config, ALONE)


def test_without_a_gpu_auto_is_the_folder() -> None:
    """Nobody is asked: nothing listens at that address."""
    assert chosen(base_url=URL, device="cpu") == "folder"
    assert chosen(device="cpu") == "folder"
    assert chosen(transfer="folder", base_url=URL) == "folder"
    assert chosen(transfer="gloo") == "gloo"
    assert transfer_of(load({}).config, ALONE) == "folder"


@pytest.mark.parametrize(
    ("can", "way"),
    [(("folder", "gloo", "nccl"), "nccl"), (("folder", "gloo"), "folder"), ((), "folder")],
)
def test_on_a_gpu_auto_is_nccl_where_the_server_can(
    monkeypatch: pytest.MonkeyPatch, can: tuple[str, ...], way: str
) -> None:
    monkeypatch.setattr(transfer, "resolve_device", lambda name: torch.device("cuda", 0))
    monkeypatch.setattr(transfer, "_asked", lambda settings: can)
    monkeypatch.setattr(transfer.dist, "is_nccl_available", lambda: True)
    assert chosen(base_url=URL) == way
    assert chosen() == "folder", "the run's own server is on the same GPU"
    if way == "folder":
        with pytest.raises(EngineError, match=rf"{URL} cannot be sent weights over nccl .*docs/serving\.md"):
            chosen(base_url=URL, transfer="nccl")


def test_what_cannot_be_is_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"transfer is nccl.*no CUDA device with NCCL; set it to auto"):
        chosen(base_url=URL, transfer="nccl", device="cpu")
    with pytest.raises(ConfigError, match=r"trainer's own GPU.*give base_url, or set transfer to auto"):
        chosen(transfer="nccl")
    with pytest.raises(ConfigError, match=r"weights_dir is a folder for weights, but transfer is gloo"):
        chosen(base_url=URL, transfer="gloo", weights_dir="/shared")
    with pytest.raises(ConfigError, match=r"transfer.*'auto', 'folder', 'nccl' or 'gloo'"):
        chosen(transfer="rdma")
    settings = {"base_url": URL, "transfer": "gloo"}
    with pytest.raises(ConfigError, match=r"transfer is gloo, which sends all weights, but lora is set"):
        load({"lora": {"rank": 4}, "rollout": {"engine": "vllm", "vllm": settings}})


def test_a_server_without_our_part_is_refused(server: Stub) -> None:
    server.faults(plain=True)
    with pytest.raises(
        EngineError, match=r"over gloo \(it can: nothing, since it runs without groupwise_vllm"
    ):
        chosen(base_url=server.url, transfer="gloo")
    server.faults()
    assert chosen(base_url=server.url, transfer="gloo") == "gloo"


def test_a_run_sends_its_weights(tiny_run: Callable[..., Run], server: Stub) -> None:
    """Also while the next batch is being sampled; what is in force is kept in the run's manifest."""
    server.faults()
    settings = {"base_url": server.url, "transfer": "gloo"}
    sampled = {"engine": "vllm", "prompts_per_step": 2, "group_size": 3, "max_new_tokens": 6}
    run = tiny_run(rollout={**sampled, "vllm": settings, "overlap": 1}, training={"steps": 3})
    metrics = train(run).metrics
    assert [line["sampler/lag_updates_mean"] for line in metrics] == [0, 1, 1]
    assert metrics[0]["sampler/gap_abs_max"] < 1e-3
    paths = server.told["paths"]
    assert (paths.count("/init_weight_transfer_engine"), paths.count("/update_weights")) == (1, 1 + 3)
    notices = read_manifest(run.recorder.folder)["notices"]
    assert "the vLLM server is sent all weights from memory to memory, over gloo" in notices


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_two_processes_send_as_one(tmp_path: Path, server: Stub, strategy: str) -> None:
    """The first of them sends, also what is divided among both."""
    settings = {"engine": "vllm", "vllm": {"base_url": server.url, "transfer": "gloo"}}
    one = trained(tmp_path / "one", 1, rollout=settings)
    server.faults()
    two = trained(tmp_path / "two", 2, rollout=settings, distributed={"strategy": strategy})
    assert server.told["paths"].count("/update_weights") == 1 + STEPS
    same_metrics(two, one)
