"""A run whose rollouts a server samples: a stand-in for vLLM, started by the run itself or there already."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from groupwise.config import load
from groupwise.config.model import ModelConfig
from groupwise.config.serving import VllmConfig
from groupwise.errors import ConfigError
from groupwise.model.load import load_policy
from groupwise.model.quantise import is_quantised
from groupwise.training.distributed import Ranks
from groupwise.training.loop import train
from groupwise.training.serving import _remove_left_behind, engine_of, write_base
from groupwise.training.setup import Run
from tests.rollouts.vllm.stub import alone, interpreter, running
from tests.training.ranks import STEPS
from tests.training.test_distributed import same_metrics, trained


@pytest.fixture
def python(tmp_path: Path) -> Iterator[str]:
    """In place of an interpreter that has vLLM."""
    with interpreter(tmp_path) as program:
        yield program


def rollout(**settings: Any) -> dict[str, Any]:
    return {"engine": "vllm", "prompts_per_step": 2, "group_size": 3, "max_new_tokens": 6, **settings}


@pytest.mark.parametrize("lora", [False, True], ids=["all weights", "adapter"])
def test_a_run_that_starts_its_server(
    tiny_run: Callable[..., Run], python: str, tmp_path: Path, lora: bool
) -> None:
    """Every batch is of the newest weights, and the trainer's log-probs are the server's to rounding."""
    sections: dict[str, Any] = {"lora": {"rank": 4}} if lora else {}
    weights = tmp_path / "weights"
    settings = {"python": python, "weights_dir": str(weights)}
    run = tiny_run(rollout=rollout(vllm=settings), training={"steps": 3, "learning_rate": 0.05}, **sections)
    metrics = train(run).metrics
    assert [line["sampler/lag_updates_mean"] for line in metrics] == [0, 0, 0]
    assert max(line["sampler/gap_abs_max"] for line in metrics) < 1e-3
    assert all(line["sampler/correction_mean"] == pytest.approx(1, abs=1e-3) for line in metrics)
    assert all(line["time/weights_seconds"] > 0 for line in metrics)
    assert "policy/entropy" not in metrics[0], "a server does not tell it"
    assert list(weights.iterdir()) == [], "nothing is left of what was handed over"


def test_a_run_asks_a_server_that_is_there(tiny_run: Callable[..., Run]) -> None:
    """And samples ahead, with weights one step old."""
    with running() as stub:
        run = tiny_run(rollout=rollout(vllm={"base_url": stub.url}, overlap=1))
        metrics = train(run).metrics
        assert [line["sampler/lag_updates_mean"] for line in metrics] == [0, 1, 1]
        assert all(line["time/wait_seconds"] >= 0 for line in metrics)
        assert stub.told["paths"].count("/finish_weight_update") == 1 + 3


def test_what_is_not_there_is_refused_before_anything_is_started(
    tiny_run: Callable[..., Run], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"rollout\.vllm\.python is /no/python, which is not there"):
        tiny_run(rollout=rollout(vllm={"python": "/no/python"}))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"rollout\.vllm\.weights_dir: nothing can be written to .*file"):
        tiny_run(rollout=rollout(vllm={"weights_dir": str(tmp_path / "file")}))


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_two_processes_share_a_server(tmp_path: Path, strategy: str) -> None:
    """Each asks for its own prompts; the first hands the weights over, put together where they are divided."""
    with running() as stub:
        settings = {
            "engine": "vllm",
            "vllm": {"base_url": stub.url, "weights_dir": str(tmp_path / "weights")},
        }
        one = trained(tmp_path / "one", 1, rollout=settings)
        stub.faults()
        two = trained(tmp_path / "two", 2, rollout=settings, distributed={"strategy": strategy})
        assert stub.told["paths"].count("/finish_weight_update") == 1 + STEPS
    same_metrics(two, one)


def test_sampling_ahead_is_for_one_process(tiny_run: Callable[..., Run], tmp_path: Path) -> None:
    run = tiny_run(rollout=rollout(overlap=1))
    scorer = run.updater.forward.scorer
    with pytest.raises(ConfigError, match="2 were started"):
        engine_of(run.config, run.policy, scorer, Ranks(0, 2), base=tmp_path)


def test_the_base_of_an_adapter_is_written_as_it_was(tmp_path: Path) -> None:
    """The adapter's layers have the names and weights of the plain model, whatever the adapter has become."""
    tree = {"model": {"name": "tiny"}, "lora": {"rank": 4}}
    config = load(tree).config
    plain = load_policy(config.model, lora=None, stop_tokens=(), base=tmp_path, seed=0)
    tuned = load_policy(config.model, lora=config.lora, stop_tokens=(), base=tmp_path, seed=0)
    with torch.no_grad():
        for name, parameter in tuned.model.named_parameters():
            if "lora_B" in name:
                parameter.fill_(1.0)
    write_base(tuned, tmp_path / "base", by=alone)
    found = load_file(tmp_path / "base" / "model.safetensors")
    expected = dict(plain.model.named_parameters())
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        np.testing.assert_array_equal(tensor.numpy(), expected[name].detach().numpy())


@pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="needs the extra quant")
def test_the_base_of_an_adapter_is_written_unpacked(tmp_path: Path) -> None:
    """A plain model, of the very weights that the adapter is trained on: the same logits to rounding."""
    tree = {"model": {"name": "tiny"}, "lora": {"rank": 4}, "memory": {"quantise": "nf4"}}
    config = load(tree).config
    tuned = load_policy(
        config.model, lora=config.lora, stop_tokens=(), base=tmp_path, seed=0, memory=config.memory
    )
    write_base(tuned, tmp_path / "base", by=alone)
    plain = load_policy(ModelConfig(name=str(tmp_path / "base")), lora=None, base=tmp_path, seed=0)
    assert not any(is_quantised(module) for module in plain.model.modules())
    ids = torch.tensor([[5, 6, 7, 2, 9, 11, 40]])
    with torch.no_grad(), tuned.model.disable_adapter():
        expected = tuned.model(ids).logits
        found = plain.model(ids).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_weights_of_runs_that_were_killed_are_removed(tmp_path: Path) -> None:
    host = os.uname().nodename
    ended = os.spawnlp(os.P_NOWAIT, "true", "true")
    os.waitpid(ended, 0)
    names = {f"groupwise-{host}-{ended}-a": False, f"groupwise-{host}-{os.getpid()}-b": True, "other": True}
    for name in (*names, f"groupwise-elsewhere-{ended}-c"):
        (tmp_path / name).mkdir()
    _remove_left_behind(tmp_path)
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {name for name, stays in names.items() if stays} | {f"groupwise-elsewhere-{ended}-c"}


def test_defaults_start_a_server_of_this_interpreter() -> None:
    config = VllmConfig()
    assert config.base_url is None
    assert config.python is None
    assert config.restarts == 3
