import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from groupwise.checkpoint.export import save_model
from groupwise.checkpoint.weights import read_weights, write_weights
from groupwise.config.model import LoraConfig, ModelConfig
from groupwise.errors import CheckpointError
from groupwise.model.load import Policy, load_policy
from groupwise.model.tiny import Architecture, write_tiny
from tests.model.parameters import trainable_parameters

# PEFT 0.21 asks transformers 5.24 under an old name.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")

IDS = torch.tensor([[5, 6, 7, 2, 9]])


def _logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS).logits


def _policy(
    folder: Path, lora: LoraConfig | None = None, *, dtype: str = "float32", stir: bool = True
) -> Policy:
    """The policy as training would leave it."""
    policy = load_policy(
        ModelConfig(name=str(folder), device="cpu", dtype=dtype), lora=lora, base=folder.parent, seed=0
    )
    generator = torch.Generator().manual_seed(0)
    for _, parameter in trainable_parameters(policy.model):
        if stir:
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
    return policy


def _checksum(model: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        digest.update(name.encode() + parameter.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen2"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_saved_model_is_the_policy(tmp_path: Path, architecture: Architecture, tied: bool) -> None:
    policy = _policy(write_tiny(tmp_path / "base", architecture=architecture, tied=tied))
    save_model(policy, tmp_path / "out" / "model")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "model")
    assert torch.equal(_logits(loaded), _logits(policy.model))
    assert (loaded.lm_head.weight is loaded.get_input_embeddings().weight) == tied
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out" / "model")
    assert tokenizer("hello 12")["input_ids"] == policy.tokenizer("hello 12")["input_ids"]
    assert tokenizer.chat_template == policy.tokenizer.chat_template
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (2, 2)
    assert loaded.generation_config.eos_token_id == 2
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["model"]


def test_half_precision_stays_half_precision(tmp_path: Path) -> None:
    policy = _policy(write_tiny(tmp_path / "base"), dtype="bfloat16")
    save_model(policy, tmp_path / "model")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert loaded.dtype == torch.bfloat16
    assert torch.equal(_logits(loaded), _logits(policy.model))


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_lora_is_saved_merged_and_alone_and_the_base_is_not_touched(
    tmp_path: Path, architecture: Architecture
) -> None:
    # Case h04.
    policy = _policy(write_tiny(tmp_path / "base", architecture=architecture), LoraConfig(rank=4))
    expected, before = _logits(policy.model), _checksum(policy.model)
    for _ in range(3):
        save_model(policy, tmp_path / "model")
    assert _checksum(policy.model) == before
    assert torch.equal(_logits(policy.model), expected)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert (_logits(merged) - expected).abs().max() < 1e-5
    assert merged.lm_head.weight is merged.get_input_embeddings().weight
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    assert (_logits(base) - expected).abs().max() > 1e-3
    assert torch.equal(_logits(PeftModel.from_pretrained(base, tmp_path / "model" / "adapter")), expected)
    files = {p.name for p in (tmp_path / "model" / "adapter").iterdir()}
    assert files == {"adapter_config.json", "adapter_model.safetensors"}


def test_a_further_run_goes_on_from_the_saved_adapter(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "base")
    first = _policy(folder, LoraConfig(rank=4))
    save_model(first, tmp_path / "model")
    second = _policy(folder, LoraConfig(adapter=str(tmp_path / "model" / "adapter")), stir=False)
    assert torch.equal(_logits(second.model), _logits(first.model))
    save_model(second, tmp_path / "again")
    files = {p.name for p in (tmp_path / "again" / "adapter").iterdir()}
    assert files == {"adapter_config.json", "adapter_model.safetensors"}  # the reference's copy is not saved
    assert torch.equal(
        _logits(AutoModelForCausalLM.from_pretrained(tmp_path / "again")),
        _logits(AutoModelForCausalLM.from_pretrained(tmp_path / "model")),
    )


@pytest.mark.parametrize("kind", [{"use_dora": True}, {"use_rslora": True}, {"rank_pattern": {"q_proj": 2}}])
def test_an_adapter_of_another_kind_is_saved_whole(tmp_path: Path, kind: dict[str, Any]) -> None:
    """Merged, for PEFT, and in a checkpoint, what was gone on with is the policy."""
    folder = write_tiny(tmp_path / "base")
    chosen = {"r": 4, "target_modules": ["q_proj", "down_proj"], "task_type": "CAUSAL_LM", **kind}
    made = get_peft_model(AutoModelForCausalLM.from_pretrained(folder), PeftLoraConfig(**chosen))
    made.save_pretrained(tmp_path / "tuned", save_embedding_layers=False)
    config = LoraConfig(adapter=str(tmp_path / "tuned"))
    policy = _policy(folder, config)
    expected = _logits(policy.model)
    save_model(policy, tmp_path / "model")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert (_logits(merged) - expected).abs().max() < 1e-5
    base = AutoModelForCausalLM.from_pretrained(folder)
    assert (_logits(base) - expected).abs().max() > 1e-3
    assert torch.equal(_logits(PeftModel.from_pretrained(base, tmp_path / "model" / "adapter")), expected)
    write_weights(policy, tmp_path / "checkpoint")
    resumed = _policy(folder, config, stir=False)
    read_weights(resumed, tmp_path / "checkpoint")
    assert torch.equal(_logits(resumed.model), expected)


def test_a_saved_model_can_be_trained_again(tmp_path: Path) -> None:
    policy = _policy(write_tiny(tmp_path / "base"))
    save_model(policy, tmp_path / "model")
    again = _policy(tmp_path / "model", stir=False)
    assert torch.equal(_logits(again.model), _logits(policy.model))
    assert (again.stop_token_ids, again.pad_token_id) == (policy.stop_token_ids, policy.pad_token_id)


def test_all_stop_tokens_of_the_run_are_saved(tmp_path: Path) -> None:
    write_tiny(tmp_path / "base")
    config = ModelConfig(name="base", device="cpu")
    policy = load_policy(config, lora=None, stop_tokens=("<|endoftext|>",), base=tmp_path, seed=0)
    save_model(policy, tmp_path / "model")
    assert json.loads((tmp_path / "model" / "generation_config.json").read_text())["eos_token_id"] == [0, 2]


def test_an_older_model_is_replaced_whole(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "base")
    save_model(_policy(folder, LoraConfig(rank=4)), tmp_path / "model")
    save_model(_policy(folder), tmp_path / "model")
    assert not (tmp_path / "model" / "adapter").exists()


def test_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    policy = _policy(write_tiny(tmp_path / "base"), LoraConfig(rank=4))
    capfd.readouterr()
    save_model(policy, tmp_path / "model")
    assert capfd.readouterr() == ("", "")


def test_places_that_are_refused(tmp_path: Path) -> None:
    policy = _policy(write_tiny(tmp_path / "base"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(CheckpointError, match=r"would remove thesis\.tex; name another folder"):
        save_model(policy, tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"
    with pytest.raises(CheckpointError, match="which is a file; name a folder"):
        save_model(policy, tmp_path / "mine" / "thesis.tex")
    with pytest.raises(CheckpointError, match=r"cannot be saved in .*: Not a directory"):
        save_model(policy, tmp_path / "mine" / "thesis.tex" / "deep" / "model")


def test_a_failure_leaves_the_older_model(tmp_path: Path) -> None:
    policy = _policy(write_tiny(tmp_path / "base"), LoraConfig(rank=4))
    save_model(policy, tmp_path / "model")
    before = (tmp_path / "model" / "model.safetensors").read_bytes()
    trainable_parameters(policy.model)[0][1].data[0, 0] = torch.inf
    with pytest.raises(CheckpointError, match="not finite"):
        save_model(policy, tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["base", "model"]
