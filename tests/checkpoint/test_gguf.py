"""A .gguf file is read back as the model that was written, by log-probs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import pre_tokenizers

from groupwise.checkpoint.gguf import write_gguf
from groupwise.config.model import LoraConfig, ModelConfig
from groupwise.errors import CheckpointError, ModelError
from groupwise.model.load import Policy, load_policy
from groupwise.model.tiny import Architecture, write_tiny
from tests.model.parameters import trainable_parameters

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")

IDS = torch.tensor([[5, 6, 7, 2, 9, 40, 41, 300]])


def logprobs(policy: Policy) -> torch.Tensor:
    model: Any = policy.model
    with torch.no_grad():
        found: torch.Tensor = model(IDS).logits.double().log_softmax(-1)
    return found


def load(place: Path, lora: LoraConfig | None = None) -> Policy:
    return load_policy(ModelConfig(name=str(place), device="cpu"), lora=lora, base=place.parent, seed=0)


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@pytest.mark.parametrize("tied", [True, False])
def test_it_is_the_same_model(tmp_path: Path, architecture: Architecture, tied: bool) -> None:
    policy = load(write_tiny(tmp_path / "base", architecture=architecture, tied=tied, weight_scale=0.2))
    write_gguf(policy, tmp_path / "out" / "model.gguf", precision="f32")
    again = load(tmp_path / "out" / "model.gguf")
    assert (logprobs(again) - logprobs(policy)).abs().max() < 1e-6
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model.gguf"]
    for text in ("hello 12 times", "What is 3 plus 47? <|im_end|>\n", "é 日本 the"):
        assert again.tokenizer(text)["input_ids"] == policy.tokenizer(text)["input_ids"]
    chat = [{"role": "user", "content": "hi"}]
    rendered = [each.tokenizer.apply_chat_template(chat, tokenize=False) for each in (again, policy)]
    assert rendered[0] == rendered[1]
    assert again.stop_token_ids == policy.stop_token_ids


def test_half_precision_is_half_the_size_and_close(tmp_path: Path) -> None:
    policy = load(write_tiny(tmp_path / "base", weight_scale=0.2))
    for precision in ("f32", "f16"):
        write_gguf(policy, tmp_path / f"{precision}.gguf", precision=precision)  # type: ignore[arg-type]
    sizes = [(tmp_path / f"{name}.gguf").stat().st_size for name in ("f16", "f32")]
    assert 0.45 < sizes[0] / sizes[1] < 0.6
    gap = (logprobs(load(tmp_path / "f16.gguf")) - logprobs(policy)).abs().max()
    assert 1e-6 < gap < 0.02


def test_an_adapter_is_merged_in(tmp_path: Path) -> None:
    policy = load(write_tiny(tmp_path / "base"), LoraConfig(rank=4))
    generator = torch.Generator().manual_seed(0)
    for _, parameter in trainable_parameters(policy.model):
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    write_gguf(policy, tmp_path / "model.gguf", precision="f32")
    found = logprobs(load(tmp_path / "model.gguf"))
    assert (found - logprobs(policy)).abs().max() < 1e-5
    assert (found - logprobs(load(tmp_path / "base"))).abs().max() > 1e-3


def test_what_has_no_place_in_the_format(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"is of the architecture gpt2; .* convert_hf_to_gguf.py"):
        write_gguf(load(write_tiny(tmp_path / "gpt2", architecture="gpt2")), tmp_path / "x.gguf")
    policy = load(write_tiny(tmp_path / "base"))
    config: Any = policy.model.config
    config.rope_parameters = {**config.rope_parameters, "rope_type": "yarn"}
    with pytest.raises(ModelError, match="scales its rotary positions"):
        write_gguf(policy, tmp_path / "x.gguf")
    other: Any = load(write_tiny(tmp_path / "base2"))
    other.tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(ModelError, match="read other tokens"):
        write_gguf(other, tmp_path / "x.gguf")
    assert not list(tmp_path.glob("*x.gguf*"))


def test_a_weight_that_float16_cannot_hold_is_told(tmp_path: Path) -> None:
    policy = load(write_tiny(tmp_path / "base"))
    weight: Any = next(p for n, p in policy.model.named_parameters() if n.endswith("up_proj.weight"))
    weight.data[0, 0] = 70_000.0
    with pytest.raises(ModelError, match=r"up_proj.weight with values .* in float16; take --precision f32"):
        write_gguf(policy, tmp_path / "x.gguf")
    write_gguf(policy, tmp_path / "y.gguf", precision="f32")
    weight.data[0, 0] = float("nan")
    with pytest.raises(ModelError, match=r"with values that are not finite$"):
        write_gguf(policy, tmp_path / "y.gguf", precision="f32")


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    policy = load(write_tiny(tmp_path / "base"))
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be written"):
        write_gguf(policy, tmp_path / "file" / "x.gguf")
