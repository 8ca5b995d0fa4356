"""Every form that a run's model is exported in is loaded back and compared by log-probs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from groupwise.config.model import ModelConfig
from groupwise.model.load import load_policy
from groupwise.model.tiny import write_tiny
from tests.cli.conftest import Said

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")

IDS = torch.tensor([[5, 6, 7, 2, 9]])


def logprobs(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(IDS).logits.double().log_softmax(-1)
    return found


def test_every_form_is_the_model_that_was_trained(project: Path, groupwise: Callable[..., Said]) -> None:
    write_tiny(project / "base")
    said = groupwise("train", "config.yaml", "model=./base", "lora.rank=4", "training.learning_rate=0.05")
    assert said.code == 0, said.err
    trained = logprobs(AutoModelForCausalLM.from_pretrained(project / "run" / "model"))
    base = AutoModelForCausalLM.from_pretrained(project / "base")
    assert (logprobs(base) - trained).abs().max() > 1e-3

    assert groupwise("export", "run", "folder").out == "wrote folder, a Hugging Face folder\n"
    assert torch.equal(logprobs(AutoModelForCausalLM.from_pretrained(project / "folder")), trained)

    assert groupwise("export", "run", "adapter", "--adapter").out == "wrote adapter, a PEFT adapter\n"
    assert (logprobs(PeftModel.from_pretrained(base, project / "adapter")) - trained).abs().max() < 1e-5

    assert groupwise("export", "run", "m.gguf", "--precision", "f32").out == "wrote m.gguf, a .gguf file\n"
    found = load_policy(ModelConfig(name="m.gguf", device="cpu"), lora=None, base=project, seed=0)
    assert (logprobs(found.model) - trained).abs().max() < 1e-6
    assert groupwise("export", "folder", "again.GGUF").out == "wrote again.GGUF, a .gguf file\n"
    assert groupwise("export", "again.GGUF", "unpacked").out == "wrote unpacked, a Hugging Face folder\n"


def test_wrong_inputs(project: Path, groupwise: Callable[..., Said]) -> None:
    write_tiny(project / "base")
    (project / "taken").mkdir()
    (project / "taken" / "x").write_text("")
    for words, message in (
        (("base", "out", "--adapter"), "base has no adapter: it was trained in full"),
        (("base", "x.gguf", "--adapter"), "--adapter writes a folder for PEFT, not a .gguf file"),
        (("base", "x.gguf", "--precision", "q4"), "--precision 'q4' is neither f16 nor f32"),
        (("base", "taken"), "would remove x; name another folder"),
        (("nowhere/at/all", "out"), "there is no"),
        (("config.yaml", "config.yaml"), "which is a file; name a folder"),
    ):
        said = groupwise("export", *words)
        assert (said.code, said.out) == (2, ""), words
        assert message in said.err
