"""Several ranks train what one trains: the same rollouts, gradients and metrics; and they end together."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from groupwise.errors import ConfigError
from groupwise.records.metrics_file import comparable, read_metrics
from groupwise.training.distributed import ALONE, launched, refuse_several
from tests.training.ranks import errors, together, train_here, tree

GRADIENT = 1e-10
"""Of the norm of the difference over the norm, in float64: design, section 3."""
METRIC = 1e-6
"""Relative; log-probs are kept in float32, whose last bit is 6e-8."""


def trained(place: Path, count: int, *, exact: bool = True, **sections: Any) -> Path:
    """The folder of a run of so many ranks."""
    folder = place / f"run-{count}-{len(list(place.iterdir()))}"
    codes = together(count, train_here, tree(folder, **sections), exact, None, place=place)
    assert codes == [0] * count, errors(place)
    return folder


def compare(several: Path, one: Path, count: int, *, gradient: float = GRADIENT) -> float:
    """Fail unless two runs are the same; the largest difference of a gradient, relative."""
    worst = 0.0
    expected = torch.load(one / "gradients-0.pt", weights_only=True)
    for number in range(count):
        found = torch.load(several / f"gradients-{number}.pt", weights_only=True)
        assert len(found) == len(expected)
        for mine, right in zip(found, expected, strict=True):
            assert mine.shape == right.shape
            worst = max(worst, float((mine - right).norm() / right.norm().clamp_min(1e-30)))
    assert worst <= gradient
    lines, rights = (read_metrics(folder / "metrics.jsonl") for folder in (several, one))
    assert len(lines) == len(rights) == 5
    for line, right in zip(lines, rights, strict=True):
        line, right = comparable(line), comparable(right)
        assert line.keys() == right.keys()
        for name in right:
            # what is a sum of numbers that cancel has their rounding, not its own
            assert math.isclose(line[name], right[name], rel_tol=METRIC, abs_tol=1e-7), name
    return worst


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("alone"), 1)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_two_ranks_train_as_one(strategy: str, alone: Path, tmp_path: Path) -> None:
    several = trained(tmp_path, 2, distributed={"strategy": strategy})
    worst = compare(several, alone, 2)
    print(f"{strategy}: gradients differ by {worst:.1e}")
    for step in range(1, 6):
        name = f"rollouts/step-{step:06d}.parquet"
        assert (several / name).exists()
    saved, right = (torch_load(folder / "model") for folder in (several, alone))
    assert saved.keys() == right.keys()
    for name in right:
        torch.testing.assert_close(saved[name], right[name], rtol=0, atol=1e-6)


def torch_load(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")
