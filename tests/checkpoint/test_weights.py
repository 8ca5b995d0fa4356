"""The trained weights of a checkpoint, full and LoRA: cases g07."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from groupwise.checkpoint.weights import ADAPTER, WEIGHTS, read_weights, trained_weights, write_weights
from groupwise.config.model import LoraConfig, ModelConfig
from groupwise.errors import CheckpointError, TrainingError
from groupwise.model.load import Policy, load_policy
from groupwise.model.tiny import build_tiny


def lora_policy(seed: int = 0, rank: int = 4) -> Policy:
    policy = load_policy(ModelConfig(name="tiny"), lora=LoraConfig(rank=rank), base=Path.cwd(), seed=seed)
    disturb(policy, seed)
    return policy


def disturb(policy: Policy, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator))


def test_every_weight_comes_back_bit_for_bit(build_policy: Callable[..., Policy], tmp_path: Path) -> None:
    one, other = build_policy(1), build_policy(2)
    write_weights(one, tmp_path)
    identity = [id(p) for p in other.model.parameters()]
    read_weights(other, tmp_path)
    for (name, a), b in zip(one.model.state_dict().items(), other.model.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert [id(p) for p in other.model.parameters()] == identity  # in place, since the optimiser holds them


def test_tied_weights_are_written_once_and_stay_tied(
    build_policy: Callable[..., Policy], tmp_path: Path
) -> None:
    policy = build_policy(1)
    names = set(policy.model.state_dict())
    tied = policy.model.get_output_embeddings().weight is policy.model.get_input_embeddings().weight
    write_weights(policy, tmp_path)
    assert len(load_file(tmp_path / WEIGHTS)) == len(names) - int(tied)
    other = build_policy(2)
    read_weights(other, tmp_path)
    assert (other.model.get_output_embeddings().weight is other.model.get_input_embeddings().weight) == tied


def test_lora_saves_the_adapter_in_pefts_layout_and_never_the_base(tmp_path: Path) -> None:
    policy = lora_policy()
    base = {n: p.clone() for n, p in policy.model.named_parameters() if "lora_" not in n}
    write_weights(policy, tmp_path)
    files = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert files == {f"{ADAPTER}/adapter_model.safetensors", f"{ADAPTER}/adapter_config.json"}
    saved = load_file(tmp_path / ADAPTER / "adapter_model.safetensors")
    assert all("lora_" in name for name in saved)
    assert json.loads((tmp_path / ADAPTER / "adapter_config.json").read_text())["r"] == 4
    other = lora_policy(seed=3)
    read_weights(other, tmp_path)
    for name, tensor in trained_weights(other).items():
        assert torch.equal(tensor, saved[name]), name
    assert all(torch.equal(p, dict(policy.model.named_parameters())[n]) for n, p in base.items())
    # PEFT itself reads it.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PEFT's own use of transformers
        tuned = peft.PeftModel.from_pretrained(build_tiny(0)[0], tmp_path / ADAPTER)
    own = peft.get_peft_model_state_dict(tuned)
    assert all(torch.equal(own[name], tensor) for name, tensor in saved.items())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("lora", [False, True])
def test_weights_that_are_not_finite_are_not_saved(
    value: float, lora: bool, build_policy: Callable[..., Policy], tmp_path: Path
) -> None:
    policy = lora_policy() if lora else build_policy()
    parameter = [each for each in policy.model.parameters() if each.requires_grad][-1]
    with torch.no_grad():
        parameter.view(-1)[3] = value
    with pytest.raises(TrainingError, match="NaN or infinity") as raised:
        write_weights(policy, tmp_path)
    bad = [n for n, each in trained_weights(policy).items() if not each.isfinite().all()]
    assert bad[0] in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_of_another_model_is_named(build_policy: Callable[..., Policy], tmp_path: Path) -> None:
    write_weights(build_policy(hidden=32), tmp_path)
    policy = build_policy()
    before = {n: p.clone() for n, p in policy.model.named_parameters()}
    with pytest.raises(CheckpointError, match=r"of another model: its \S+ is \["):
        read_weights(policy, tmp_path)
    saved = load_file(tmp_path / WEIGHTS)
    saved.pop(sorted(saved)[0])
    save_file(saved, tmp_path / WEIGHTS)
    with pytest.raises(CheckpointError, match="of another model"):
        read_weights(policy, tmp_path)
    assert all(torch.equal(p, before[n]) for n, p in policy.model.named_parameters())


def test_an_adapter_for_a_full_run_and_the_other_way_round(
    build_policy: Callable[..., Policy], tmp_path: Path
) -> None:
    for name, one, other in (("a", build_policy(), lora_policy()), ("b", lora_policy(), build_policy())):
        (tmp_path / name).mkdir()
        write_weights(one, tmp_path / name)
        with pytest.raises(CheckpointError, match="of another run"):
            read_weights(other, tmp_path / name)
    (tmp_path / "c").mkdir()
    write_weights(lora_policy(rank=8), tmp_path / "c")
    with pytest.raises(CheckpointError, match="of another model"):
        read_weights(lora_policy(rank=4), tmp_path / "c")
