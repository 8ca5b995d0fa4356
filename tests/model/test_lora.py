import copy
import hashlib
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from groupwise.config.model import LoraConfig
from groupwise.errors import CheckpointError, ConfigError, ModelError
from groupwise.model.logprobs import TokenLogprobs
from groupwise.model.lora import (
    POLICY,
    REFERENCE,
    attach,
    base_weights,
    merged_weights,
    reference_weights,
)
from groupwise.model.tiny import build_tiny
from tests.model.families import gradient_of, one_by_one, random_families, relative
from tests.model.parameters import trainable_parameters

# PEFT 0.21 asks transformers 5.24 under an old name.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")

IDS = torch.tensor([[5, 6, 7, 2, 9]])


def _logprobs(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS).logits.log_softmax(-1)


def _stir(model: torch.nn.Module, seed: int = 0) -> None:
    """Give the trained adapter weights as training would, B included."""
    generator = torch.Generator().manual_seed(seed)
    for _, parameter in trainable_parameters(model):
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)


def _checksum(model: torch.nn.Module) -> str:
    """Of every weight that is not an adapter's."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        if "lora_" not in name:
            digest.update(parameter.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _tuned_folder(folder: Path, **settings: Any) -> Path:
    """A PEFT folder with a tuned adapter for `build_tiny(1)`."""
    chosen = {"r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "down_proj"], "task_type": "CAUSAL_LM"}
    model = peft.get_peft_model(build_tiny(1)[0], peft.LoraConfig(**{**chosen, **settings}))
    _stir(model)
    model.save_pretrained(folder, save_embedding_layers=False)
    return folder


def test_a_fresh_adapter_changes_nothing_and_trains_alone() -> None:
    base, _ = build_tiny(1)
    expected = _logprobs(base)
    model = attach(base, LoraConfig(rank=4), seed=0)
    assert torch.equal(_logprobs(model), expected)
    names = [name for name, _ in trainable_parameters(model)]
    # Two layers of seven linear maps, A and B each.
    assert len(names) == 2 * 7 * 2
    assert all(".lora_A.default." in name or ".lora_B.default." in name for name in names)


def test_the_scale_is_alpha_over_rank() -> None:
    for config, scale in (
        (LoraConfig(rank=4), 2.0),  # alpha defaults to 2 * rank
        (LoraConfig(rank=8, alpha=4), 0.5),
    ):
        model = attach(build_tiny(1)[0], config, seed=0)
        layer = model.get_base_model().model.layers[0].self_attn.q_proj
        assert (layer.r[POLICY], layer.scaling[POLICY]) == (config.rank, scale)


def test_the_seed_decides_it_and_the_global_random_state_is_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    first, second, other = (
        trainable_parameters(attach(build_tiny(1)[0], LoraConfig(rank=4), seed=seed)) for seed in (3, 3, 4)
    )
    assert torch.equal(torch.rand(2), expected)
    assert all(torch.equal(a[1], b[1]) for a, b in zip(first, second, strict=True))
    assert not all(torch.equal(a[1], b[1]) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen2"])
def test_off_it_is_the_base_exactly_and_afterwards_the_policy_again(architecture: Any) -> None:
    # Case h06.
    base, _ = build_tiny(1, architecture=architecture)
    expected = _logprobs(base)
    model = attach(base, LoraConfig(rank=4), seed=0)
    _stir(model)
    policy = _logprobs(model)
    assert (policy - expected).abs().max() > 1e-3
    with reference_weights(model):
        assert torch.equal(_logprobs(model), expected)
        with reference_weights(model):
            assert torch.equal(_logprobs(model), expected)
        assert torch.equal(_logprobs(model), expected)
    assert torch.equal(_logprobs(model), policy)


@pytest.mark.parametrize("tuned", [False, True])
def test_the_switch_is_restored_after_an_exception(tmp_path: Path, tuned: bool) -> None:
    config = LoraConfig(rank=4, adapter=str(_tuned_folder(tmp_path / "a"))) if tuned else LoraConfig(rank=4)
    model = attach(build_tiny(1)[0], config, seed=0)
    _stir(model)
    frozen = next(p for _, p in trainable_parameters(model))
    frozen.requires_grad_(False)  # someone's own choice must survive as well
    policy, trained = _logprobs(model), [n for n, _ in trainable_parameters(model)]
    with pytest.raises(ZeroDivisionError), reference_weights(model):  # noqa: PT012
        assert not torch.equal(_logprobs(model), policy)
        raise ZeroDivisionError
    assert torch.equal(_logprobs(model), policy)
    assert [n for n, _ in trainable_parameters(model)] == trained


def test_gradients_flow_the_same_when_the_reference_was_run_in_between() -> None:
    gradients = []
    for between in (False, True):
        model = attach(build_tiny(1)[0], LoraConfig(rank=4), seed=0)
        _stir(model)
        loss = model(IDS).logits.log_softmax(-1)[0, :, 3].sum()
        if between:
            with reference_weights(model):
                _logprobs(model)
        loss.backward()
        gradients.append([p.grad for _, p in trainable_parameters(model)])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize(
    "kind",
    [{}, {"use_rslora": True}, {"use_dora": True}, {"rank_pattern": {"q_proj": 2}}, {"lora_dropout": 0.5}],
)
def test_a_tuned_adapter_is_its_own_reference(tmp_path: Path, kind: dict[str, Any]) -> None:
    # Case h01: the reference is the policy at the start, for every kind of adapter that is accepted.
    folder = _tuned_folder(tmp_path / "tuned", **kind)
    bare = _logprobs(build_tiny(1)[0])
    model = attach(build_tiny(1)[0], LoraConfig(adapter="tuned"), seed=0, base=tmp_path)
    start = _logprobs(model)
    assert (start - bare).abs().max() > 1e-3
    assert torch.equal(start, _logprobs(peft.PeftModel.from_pretrained(build_tiny(1)[0], folder)))
    with reference_weights(model):
        assert torch.equal(_logprobs(model), start)
    assert all(f".{POLICY}" in name for name, _ in trainable_parameters(model))
    loss = model(IDS).logits.log_softmax(-1)[0, :, 3].sum()
    loss.backward()
    assert all(p.grad is not None for _, p in trainable_parameters(model))
    _stir(model)
    assert (_logprobs(model) - start).abs().max() > 1e-3
    with reference_weights(model):
        assert torch.equal(_logprobs(model), start)


def test_dropout_is_the_runs_own_and_never_the_references(tmp_path: Path) -> None:
    folder = _tuned_folder(tmp_path / "tuned", lora_dropout=0.9)
    model = attach(build_tiny(1)[0], LoraConfig(adapter=str(folder)), seed=0)
    start = _logprobs(model)
    model.train()
    assert torch.equal(_logprobs(model), start)  # lora.dropout is 0
    model = attach(build_tiny(1)[0], LoraConfig(adapter=str(folder), dropout=0.5), seed=0)
    model.train()
    assert not torch.equal(_logprobs(model), start)
    with reference_weights(model):
        assert torch.equal(_logprobs(model), start)


@pytest.mark.parametrize(
    "kind", [{}, {"use_rslora": True}, {"use_dora": True}, {"rank_pattern": {"q_proj": 2}}]
)
def test_merging_gives_the_policy_and_never_touches_the_base(tmp_path: Path, kind: dict[str, Any]) -> None:
    # Case h04.
    folder = _tuned_folder(tmp_path / "tuned", **kind)
    base, _ = build_tiny(1)
    model = attach(base, LoraConfig(adapter=str(folder)), seed=0)
    _stir(model)
    policy, before = _logprobs(model), _checksum(model)
    for _ in range(10 if kind else 100):
        weights = merged_weights(model)
    assert _checksum(model) == before
    assert torch.equal(_logprobs(model), policy)
    plain, _ = build_tiny(9)
    assert set(weights) == set(plain.state_dict())
    plain.load_state_dict(weights)
    assert (_logprobs(plain) - policy).abs().max() < 1e-5
    assert not any(weight.requires_grad for weight in weights.values())


def test_merging_a_half_precision_base(tmp_path: Path) -> None:
    model = attach(build_tiny(1, dtype=torch.bfloat16)[0], LoraConfig(rank=4), seed=0)
    assert {p.dtype for _, p in trainable_parameters(model)} == {torch.float32}
    _stir(model)
    before = _checksum(model)
    layer = model.get_base_model().model.layers[1].mlp.up_proj
    # W + (alpha / rank) B A, rounded once to the base's precision.
    delta = 2.0 * layer.lora_B[POLICY].weight @ layer.lora_A[POLICY].weight
    expected = (layer.base_layer.weight.float() + delta).bfloat16().float()
    merged = merged_weights(model)["model.layers.1.mlp.up_proj.weight"]
    assert merged.dtype == torch.bfloat16
    assert (merged.float() - expected).abs().max() <= expected.abs().max() * 2**-7
    assert _checksum(model) == before


def test_an_adapter_that_is_not_finite_is_not_merged() -> None:
    model = attach(build_tiny(1)[0], LoraConfig(rank=4), seed=0)
    trainable_parameters(model)[1][1].data[0, 0] = torch.nan
    with pytest.raises(CheckpointError, match=r"layer model\.layers\.0.* not finite"):
        merged_weights(model)


def test_gpt2_layers_are_transposed_and_merge_all_the_same() -> None:
    model = attach(
        build_tiny(1, architecture="gpt2")[0], LoraConfig(rank=4, target_modules=("c_attn",)), seed=0
    )
    _stir(model)
    plain, _ = build_tiny(9, architecture="gpt2")
    plain.load_state_dict(merged_weights(model))
    assert (_logprobs(plain) - _logprobs(model)).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (
            ("q_porj",),
            r"no layer is called 'q_porj'; did you mean 'q_proj'\? this model's are .*down_proj.*v_proj",
        ),
        (("q_proj", "nothing"), "no layer is called 'nothing'"),
        (("lm_head",), r"'lm_head' means lm_head \(the head\), which takes no adapter"),
        (("embed_tokens",), r"means model\.embed_tokens \(Embedding\), which takes no adapter"),
        (("mlp",), r"means model\.layers\.0\.mlp \(LlamaMLP\), which takes no adapter"),
        ((), "lora.target_modules is empty"),
    ],
)
def test_layers_that_are_not_there(targets: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        attach(build_tiny(1)[0], LoraConfig(target_modules=targets), seed=0)


def test_layers_by_full_name() -> None:
    config = LoraConfig(rank=2, target_modules=("model.layers.1.mlp.up_proj", "v_proj"))
    names = [name for name, _ in trainable_parameters(attach(build_tiny(1)[0], config, seed=0))]
    assert len(names) == 2 * (1 + 2)


def test_adapters_that_do_not_fit(tmp_path: Path) -> None:
    folder = _tuned_folder(tmp_path / "tuned")

    def refused(kind: type[Exception], said: str, folder: Path = folder, **settings: Any) -> None:
        with pytest.raises(kind, match=said) as caught:
            attach(build_tiny(1)[0], LoraConfig(adapter=str(folder), **settings), seed=0)
        assert "\n" not in str(caught.value)

    refused(ConfigError, r"lora\.rank is 8, but the adapter .* was made with 4; leave lora\.rank out", rank=8)
    refused(ConfigError, r"lora\.alpha is 3, but the adapter .* was made with 6", alpha=3)
    refused(ModelError, "is not a folder", folder=tmp_path / "gone")
    refused(ModelError, r"has no adapter_config\.json", folder=tmp_path)
    # A model of another width.
    with pytest.raises(ModelError, match="cannot be read"):
        attach(build_tiny(1, hidden=32)[0], LoraConfig(adapter=str(folder)), seed=0)
    # A model of another depth: layers without weights.
    with pytest.raises(ModelError, match="4 of its tensors are missing"):
        attach(build_tiny(1, layers=3)[0], LoraConfig(adapter=str(folder)), seed=0)
    with pytest.raises(ModelError, match="4 are not known"):
        attach(build_tiny(1, layers=1)[0], LoraConfig(adapter=str(folder)), seed=0)
    # Other names.
    with pytest.raises(ModelError, match=r"Target modules .* not found"):
        attach(build_tiny(1, architecture="gpt2")[0], LoraConfig(adapter=str(folder)), seed=0)
    # One tensor lost.
    weights = load_file(folder / "adapter_model.safetensors")
    lost = sorted(weights)[0]
    del weights[lost]
    save_file(weights, folder / "adapter_model.safetensors")
    refused(ModelError, f"1 of its tensors are missing and 0 are not known, for example {lost}")
    (folder / "adapter_model.safetensors").write_bytes(b"garbage")
    refused(ModelError, "cannot be read")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"bias": "all"}, "trains biases of the base"),
        ({"modules_to_save": ["lm_head"]}, "whole layers beside it"),
        ({"trainable_token_indices": [1, 2]}, "embeddings beside it"),
        ({"lora_bias": True}, r"adds a bias to model\.layers\.0\.self_attn\.q_proj, which has none"),
        ({"target_modules": ["embed_tokens"]}, r"adapts model\.embed_tokens"),
        ({"target_modules": r".*(embed_tokens|q_proj)"}, r"adapts model\.embed_tokens"),
        ({"target_parameters": ["k_proj.weight"]}, r"adapts model\.layers\.0\.self_attn\.k_proj"),
        ({"target_parameters": ["embed_tokens.weight"]}, r"adapts model\.embed_tokens"),
    ],
)
@pytest.mark.filterwarnings("ignore")  # PEFT's own, on making such adapters
def test_adapters_of_kinds_that_are_not_supported(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    folder = tmp_path / "odd"
    chosen = {"r": 4, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}
    model = peft.get_peft_model(build_tiny(1, tied=False)[0], peft.LoraConfig(**{**chosen, **settings}))
    model.save_pretrained(folder, save_embedding_layers=False)
    with pytest.raises(ModelError, match=said):
        attach(build_tiny(1, tied=False)[0], LoraConfig(adapter=str(folder)), seed=0)


@pytest.mark.filterwarnings("ignore")
def test_an_adapter_that_is_not_lora(tmp_path: Path) -> None:
    model = peft.get_peft_model(build_tiny(1)[0], peft.IA3Config(task_type="CAUSAL_LM"))
    model.save_pretrained(tmp_path / "ia3", save_embedding_layers=False)
    with pytest.raises(ModelError, match="only LoRA is trained here"):
        attach(build_tiny(1)[0], LoraConfig(adapter=str(tmp_path / "ia3")), seed=0)


def _mixture() -> Any:
    """Mixtral, whose experts and router are single parameters, which PEFT adapts one within the other."""
    config = transformers.MixtralConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        initializer_range=0.2,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return transformers.MixtralForCausalLM(config).eval()


def test_experts_of_a_mixture_are_merged_and_gone_on_with(tmp_path: Path) -> None:
    base = _mixture()
    before = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    bare = _logprobs(base)
    model = attach(base, LoraConfig(rank=4), seed=0)
    assert any("experts" in name for name, _ in trainable_parameters(model))
    _stir(model)
    policy = _logprobs(model)
    plain = _mixture()
    merged = merged_weights(model)
    assert set(merged) == set(before)
    plain.load_state_dict(merged)
    assert (_logprobs(plain) - policy).abs().max() < 1e-4
    assert (policy - bare).abs().max() > 0.1
    found = base_weights(model)
    assert set(found) == set(before)
    assert all(torch.equal(found[name], tensor) for name, tensor in before.items())
    with reference_weights(model):
        assert torch.equal(_logprobs(model), bare)
    model.save_pretrained(tmp_path / "tuned", save_embedding_layers=False)
    further = attach(_mixture(), LoraConfig(adapter="tuned"), seed=1, base=tmp_path)
    assert torch.equal(_logprobs(further), policy)
    _stir(further)
    assert (_logprobs(further) - policy).abs().max() > 1e-3
    with reference_weights(further):
        assert torch.equal(_logprobs(further), policy)


def test_experts_are_trained_as_a_plain_forward_would() -> None:
    model = attach(_mixture(), LoraConfig(rank=4), seed=0)
    _stir(model)
    families = random_families(vocabulary=97)
    scorer = TokenLogprobs(model, longest_tokens=20)
    assert scorer.shared
    found = gradient_of(model, *scorer(families, temperature=0.7))
    assert relative(found, gradient_of(model, *one_by_one(model, families, temperature=0.7))) < 1e-4


def test_what_peft_refuses_is_told_with_the_setting() -> None:
    shape = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "pad_token_id": 0}

    def mamba() -> Any:
        return transformers.MambaForCausalLM(transformers.MambaConfig(**shape))

    with pytest.raises(ConfigError, match=r"'out_proj' is incompatible .* lora\.target_modules .*in_proj"):
        attach(mamba(), LoraConfig(rank=4), seed=0)
    attach(mamba(), LoraConfig(rank=4, target_modules=("in_proj", "x_proj")), seed=0)
    with pytest.raises(ConfigError, match=r"ParamWrapper does not work with lora_dropout"):
        attach(_mixture(), LoraConfig(rank=4, dropout=0.1), seed=0)


def test_trainable_parameters_of_a_full_model_list_a_tied_weight_once() -> None:
    model, _ = build_tiny(1)
    names = [name for name, _ in trainable_parameters(model)]
    assert "model.embed_tokens.weight" in names
    assert "lm_head.weight" not in names
    model.model.norm.requires_grad_(False)
    assert [n for n, _ in trainable_parameters(model)] == [n for n in names if n != "model.norm.weight"]


def test_the_reference_adapter_is_frozen_and_named(tmp_path: Path) -> None:
    model = attach(build_tiny(1)[0], LoraConfig(adapter=str(_tuned_folder(tmp_path / "tuned"))), seed=0)
    assert sorted(model.peft_config) == [POLICY, REFERENCE]
    frozen = {n: copy.deepcopy(p) for n, p in model.named_parameters() if f".{REFERENCE}." in n}
    assert len(frozen) == 2 * 2 * 2
    optimizer = torch.optim.SGD([p for _, p in trainable_parameters(model)], lr=0.5)
    model(IDS).logits.log_softmax(-1)[0, :, 3].sum().backward()
    optimizer.step()
    for name, parameter in model.named_parameters():
        if name in frozen:
            assert torch.equal(parameter, frozen[name])
