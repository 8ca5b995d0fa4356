"""A server that a run starts, and training, on one GPU."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from groupwise.errors import ConfigError
from groupwise.training.room import SHARE, refuse_without_room, share_of, without_room

GIB = 2**30


def test_what_does_not_fit_is_told_with_what_would() -> None:
    # Case k04. 0.9 of 80 GiB are 72; a 1.5 B model in float32 holds 6 GiB and needs 18 more: 24. Left are 56 of 80,
    # 70 %, and nine tenths of that are 0.63.
    told = without_room(0.9, total=80 * GIB, held=6 * GIB, needed=18 * GIB)
    assert told is not None
    assert "the server takes 90% of the GPU that training is on (72.0 of 80.0 GiB)" in told
    assert "need 24.0 GiB" in told
    assert "add --gpu-memory-utilization=0.63 to rollout.vllm.arguments, or start the server by hand" in told
    assert without_room(0.63, total=80 * GIB, held=6 * GIB, needed=18 * GIB) is None
    assert without_room(0.7, total=80 * GIB, held=6 * GIB, needed=18 * GIB) is None  # 56 + 24 = 80


def test_where_no_share_fits_the_server_goes_elsewhere() -> None:
    # 78 of 80 GiB for training leave 2.5 %.
    told = without_room(0.1, total=80 * GIB, held=20 * GIB, needed=58 * GIB)
    assert told is not None
    assert "--gpu-memory-utilization" not in told
    assert told.endswith("give its address as rollout.vllm.base_url")


@pytest.mark.parametrize(
    ("arguments", "share"),
    [
        ([], SHARE),
        (["--gpu-memory-utilization=0.5"], 0.5),
        (["--gpu_memory_utilization", "0.25"], 0.25),
        (["--gpu-memory-utilization=0.5", "--gpu-memory-utilization=0.6"], 0.6),
        (["--gpu-memory-utilization=a lot"], SHARE),
        (["--max-num-seqs=8", "--gpu-memory-utilization"], SHARE),
    ],
)
def test_the_share_is_read_as_the_server_reads_it(arguments: list[str], share: float) -> None:
    assert share_of(arguments) == share


def test_what_is_trained_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for a model on a GPU: 1 GiB of trained weights, of an allocated 1.5."""

    class OnGpu:
        def __init__(self, numbers: int, trained: bool) -> None:
            self.device, self.requires_grad = torch.device("cuda", 0), trained
            self.numel, self.element_size = (lambda: numbers), (lambda: 4)

    model: Any = SimpleNamespace(parameters=lambda: iter([OnGpu(GIB // 4, True), OnGpu(GIB // 8, False)]))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (0, 10 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: int(1.5 * GIB))
    # 1.5 + 3 of 10 GiB: 55 % are left.
    refuse_without_room(["--gpu-memory-utilization=0.55"], model, processes=1)
    with pytest.raises(ConfigError, match=r"need 4\.5 GiB of it; add --gpu-memory-utilization=0\.49"):
        refuse_without_room([], model, processes=1)
    # Divided among three: 1.5 + 1, so 75 % are left.
    refuse_without_room(["--gpu-memory-utilization=0.75"], model, processes=3)


def test_elsewhere_nothing_is_refused() -> None:
    refuse_without_room(["--gpu-memory-utilization=1.0"], torch.nn.Linear(2, 2), processes=1)
