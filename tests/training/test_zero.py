"""DeepSpeed's ZeRO-3 trains what one process trains, and a checkpoint can be gone on with either way."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from groupwise.config.distributed import DistributedConfig
from groupwise.errors import ConfigError
from groupwise.records.metrics_file import read_metrics
from groupwise.training.distributed import join
from tests.training.ranks import errors, together, tree
from tests.training.test_distributed import same_metrics

needs_deepspeed = pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None, reason="needs the extra deepspeed"
)
GRADIENT, WEIGHTS = 1e-4, 1e-5
"""Norm of the difference over the norm, in float32."""
ZERO = {"strategy": "zero3", "timeout_seconds": 60}


def train_noting(config: dict[str, Any], zero: bool = False) -> None:
    """Train in float32, which DeepSpeed computes in, and write down the gradient of every update."""
    import os

    import groupwise
    from groupwise.training import weights
    from tests.training.ranks import ROWS, share_of_vowels

    seen: list[torch.Tensor] = []
    apply = weights.GuardedStep.apply

    def noting(self: Any, *given: Any) -> Any:
        parameters = self.optimizer.parameters
        if zero:
            from deepspeed.utils import safe_get_full_grad

            grads = [safe_get_full_grad(p) for p in parameters]
            assert all(p.numel() == 0 for p in parameters), "nothing is whole between two passes"
        else:
            grads = [p.grad for p in parameters]
        seen.append(torch.cat([grad.double().reshape(-1) for grad in grads]))
        return apply(self, *given)

    weights.GuardedStep.apply = noting  # type: ignore[method-assign]
    given: dict[str, Any] = {"rewards": [share_of_vowels], "train": ROWS}
    if "resume" in config:
        result = groupwise.train(resume=config["resume"], overrides=config["overrides"], **given)
    else:
        result = groupwise.train(config, **given)
    torch.save(seen, result.folder / f"gradients-{os.environ.get('RANK', '0')}.pt")


def trained(place: Path, count: int, config: dict[str, Any], *, zero: bool = False) -> None:
    place.mkdir(exist_ok=True)
    codes = together(count, train_noting, config, zero, place=place, seconds=200)
    assert codes == [0] * count, "\n".join(error["trace"] for error in errors(place).values())


def same_model(several: Path, one: Path) -> None:
    saved, right = (load_file(folder / "model" / "model.safetensors") for folder in (several, one))
    assert saved.keys() == right.keys()
    for name in right:
        assert float((saved[name] - right[name]).norm() / right[name].norm()) < WEIGHTS, name


@needs_deepspeed
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # DeepSpeed's own
def test_two_processes_train_as_one_and_go_on_as_another_number(tmp_path: Path) -> None:
    """Five steps: the gradients of ten updates, the metrics and the model. Then the same with two steps by one
    process and three by two, and the other way round."""
    one, two, five = tmp_path / "one", tmp_path / "two", {"steps": 5}
    trained(tmp_path / "p1", 1, tree(one, training=five))
    trained(tmp_path / "p2", 2, tree(two, training=five, distributed=ZERO), zero=True)
    expected = torch.load(one / "gradients-0.pt", weights_only=True)
    for rank in range(2):
        found = torch.load(two / f"gradients-{rank}.pt", weights_only=True)
        assert len(found) == len(expected) == 10
        for mine, right in zip(found, expected, strict=True):
            assert float((mine - right).norm() / right.norm()) < GRADIENT
    same_metrics(two, one)
    same_model(two, one)
    for first, second in (((1, "ddp"), (2, "zero3")), ((2, "zero3"), (1, "ddp"))):
        folder = tmp_path / f"from-{first[1]}"
        begun = tree(
            folder,
            distributed={"strategy": first[1], "timeout_seconds": 60},
            training={"steps": 2},
            run={"save_model": False},
        )
        trained(tmp_path / f"p3{first[1]}", first[0], begun, zero=first[1] == "zero3")
        words = ["training.steps=5", f"distributed.strategy={second[1]}", "run.save_model=true"]
        again = {"resume": str(folder), "overrides": words}
        trained(tmp_path / f"p4{first[1]}", second[0], again, zero=second[1] == "zero3")
        same_metrics(folder, one)
        same_model(folder, one)


def train_spoilt(config: dict[str, Any]) -> None:
    """Train, and let one gradient of one process hold what is not a number."""
    import os

    import groupwise
    from groupwise.model.zero import ZeroShards
    from tests.training.ranks import ROWS, share_of_vowels

    backward, made = ZeroShards.backward, [0]

    def spoiling(self: ZeroShards, loss: torch.Tensor) -> None:
        made[0] += 1
        spoilt = made[0] == 3 and os.environ["RANK"] == "1"
        backward(self, loss * float("nan") if spoilt else loss)

    ZeroShards.backward = spoiling  # type: ignore[method-assign]
    groupwise.train(config, rewards=[share_of_vowels], train=ROWS)


@needs_deepspeed
@pytest.mark.long
def test_an_update_that_is_not_finite_is_left_out_and_the_weights_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    config = tree(folder, distributed=ZERO, training={"steps": 3}, objective={"kl": {"beta": 0.0}})
    assert together(2, train_spoilt, config, place=tmp_path, seconds=200) == [0, 0], errors(tmp_path)
    lines = read_metrics(folder / "metrics.jsonl")
    assert sum(line["training/skipped_updates"] for line in lines) == 1
    assert lines[-1]["training/updates"] == 3 * 2 - 1
    assert "embed_tokens.weight" in (folder / "health.jsonl").read_text()
    for tensor in load_file(folder / "model" / "model.safetensors").values():
        assert bool(tensor.isfinite().all())


def test_without_deepspeed_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"deepspeed is not installed; pip install 'groupwise\[deepspeed\]'"
    ):
        join(DistributedConfig(strategy="zero3"))
