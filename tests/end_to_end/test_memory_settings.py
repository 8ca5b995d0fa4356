"""Whole runs with the switches of the section `memory`."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

import groupwise
from groupwise.config.model import ModelConfig
from groupwise.model.load import load_policy
from groupwise.records.metrics_file import comparable, read_metrics

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
ROWS = [{"prompt": p} for p in ("Say yes.", "Give one word.", "What is two plus two?", "Hello")]
needs_quant = pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is None, reason="needs the extra quant"
)


def letters(completions: list[str], **columns: Any) -> list[float]:
    return [sum(c.isascii() and c.isalpha() for c in text) / max(len(text), 1) for text in completions]


def _run(folder: Path, **sections: Any) -> tuple[Path, list[dict[str, Any]]]:
    tree: dict[str, Any] = {
        "model": {"name": "tiny"},
        "rollout": {"prompts_per_step": 2, "group_size": 8, "max_new_tokens": 8},
        "objective": {"kl": {"beta": 0.01}},
        "training": {"steps": 5, "learning_rate": 3e-3},
        "run": {"dir": str(folder), "sinks": []},
        **sections,
    }
    result = groupwise.train(tree, rewards=[letters], train=ROWS)
    return result.folder, read_metrics(result.folder / "metrics.jsonl")


def test_a_reference_at_rest_changes_no_number(tmp_path: Path) -> None:
    plain, at_rest = (_run(tmp_path / name, memory={"reference": name})[1] for name in ("auto", "cpu"))
    assert [comparable(line) for line in at_rest] == [comparable(line) for line in plain]
    assert any(line.get("kl/token_mean", 0) > 0 for line in at_rest)


@needs_quant
def test_qlora_trains_as_lora_does_on_the_same_4_bit_weights(tmp_path: Path) -> None:
    # 4-bit weights are other weights, so a run is not that of LoRA over the originals. It is that of LoRA over the
    # unpacked ones: the first run's base, saved before anything is trained, is the second's model.
    lora = {"rank": 4}
    base, _ = _run(
        tmp_path / "base",
        lora=lora,
        memory={"quantise": "nf4", "reference": "shared"},
        training={"steps": 1, "learning_rate": 0.0},
    )
    sections = {"lora": lora, "training": {"steps": 5, "learning_rate": 3e-3}}
    folder, packed = _run(tmp_path / "packed", memory={"quantise": "nf4"}, **sections)
    _, plain = _run(tmp_path / "plain", model={"name": str(base / "model")}, **sections)
    assert [line["step"] for line in packed] == [line["step"] for line in plain]
    for ours, theirs in zip(packed, plain, strict=True):
        for name in ("reward/mean", "policy/loss", "grad/norm", "kl/token_mean", "length/mean"):
            if name in theirs:
                assert ours[name] == pytest.approx(theirs[name], rel=1e-3, abs=1e-5), (ours["step"], name)
    saved = AutoModelForCausalLM.from_pretrained(folder / "model")
    assert all(p.dtype is torch.float32 for p in saved.parameters())


@needs_quant
def test_what_a_run_with_4_bit_weights_saves_can_be_resumed_from(tmp_path: Path) -> None:
    sections = {"lora": {"rank": 4}, "memory": {"quantise": "nf4"}}
    checkpoints = {"checkpoint": {"every_steps": 3}}
    whole, expected = _run(tmp_path / "whole", **sections, **checkpoints)
    first, _ = _run(
        tmp_path / "first", **sections, **checkpoints, training={"steps": 3, "learning_rate": 3e-3}
    )
    groupwise.train(resume=first, overrides=["training.steps=5"], rewards=[letters], train=ROWS)
    found = read_metrics(first / "metrics.jsonl")
    assert [comparable(line) for line in found] == [comparable(line) for line in expected]
    assert (whole / "model").is_dir()


@needs_quant
def test_the_size_of_a_quantised_policy_is_that_of_its_weights() -> None:
    from groupwise.config.memory import MemoryConfig
    from groupwise.config.model import LoraConfig

    policy = load_policy(
        ModelConfig(name="tiny"),
        lora=LoraConfig(rank=4),
        base=Path.cwd(),
        seed=0,
        memory=MemoryConfig(quantise="nf4"),
    )
    held = sum(p.numel() * p.element_size() for p in policy.model.parameters())
    assert held < 4 * 97_472  # in float32 the model alone takes as much
