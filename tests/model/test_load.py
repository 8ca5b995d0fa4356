import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Phi3Config, Phi3ForCausalLM

from groupwise.config.model import LoraConfig, ModelConfig
from groupwise.errors import ConfigError, ModelError
from groupwise.model.load import Policy, load_policy, load_tokenizer, resolve_device
from groupwise.model.logprobs import TokenLogprobs
from groupwise.model.tiny import build_tiny, tiny_tokenizer, write_tiny
from tests.model.tiny_gguf import write_tiny_gguf


def _load(
    folder: Path, *, stop_tokens: tuple[str, ...] = (), lora: LoraConfig | None = None, **model: Any
) -> Policy:
    config = ModelConfig(name=str(folder), **model)
    return load_policy(config, lora=lora, stop_tokens=stop_tokens, base=folder.parent, seed=0)


def _edit(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file; None removes one."""
    values = json.loads(path.read_text())
    values.update(changes)
    path.write_text(json.dumps({k: v for k, v in values.items() if v is not None}))


def test_the_tiny_model_by_name(tmp_path: Path) -> None:
    policy = load_policy(ModelConfig(name="tiny", device="cpu"), lora=None, base=tmp_path, seed=5)
    expected, _ = build_tiny(5)
    assert torch.equal(policy.model.lm_head.weight, expected.lm_head.weight)
    assert (policy.name, policy.stop_token_ids, policy.pad_token_id) == ("tiny", (2,), 2)
    assert (policy.context_tokens, policy.device, policy.lora) == (512, torch.device("cpu"), False)
    assert not policy.model.training
    assert all(p.requires_grad for p in policy.model.parameters())


def test_the_global_random_state_is_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(11)
    expected = torch.rand(2)
    torch.manual_seed(11)
    load_policy(ModelConfig(name="tiny", device="cpu"), lora=LoraConfig(rank=2), base=tmp_path, seed=5)
    assert torch.equal(torch.rand(2), expected)


def test_a_folder_relative_to_the_configuration(tmp_path: Path) -> None:
    write_tiny(tmp_path / "model", 4)
    policy = load_policy(ModelConfig(name="model", device="cpu"), lora=None, base=tmp_path, seed=0)
    assert torch.equal(policy.model.lm_head.weight, build_tiny(4)[0].lm_head.weight)


def test_a_gguf_file(tmp_path: Path) -> None:
    held = write_tiny_gguf(tmp_path / "m.gguf")
    policy = _load(tmp_path / "m.gguf")
    for name, weight in held.items():
        assert torch.equal(policy.model.state_dict()[name], weight)
    assert policy.stop_token_ids == (2,)
    assert policy.tokenizer("4 5")["input_ids"] == tiny_tokenizer()("4 5")["input_ids"]


def test_dtype_acts_on_the_weights_alone(tmp_path: Path) -> None:
    write_tiny(tmp_path / "model")
    exact, half = _load(tmp_path / "model").model, _load(tmp_path / "model", dtype="bfloat16").model
    assert exact.dtype == torch.float32
    assert {p.dtype for p in half.parameters()} == {torch.bfloat16}
    assert torch.equal(half.lm_head.weight, exact.lm_head.weight.bfloat16())
    assert torch.equal(half.model.rotary_emb.inv_freq, exact.model.rotary_emb.inv_freq)


def test_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_tiny(tmp_path / "model")
    capfd.readouterr()
    _load(tmp_path / "model")
    assert capfd.readouterr() == ("", "")


def test_every_stop_token_counts_wherever_it_is_named(tmp_path: Path) -> None:
    # Case a11. The tokenizer names 2; configuration, generation settings and the run add 7, 9 and 11, and "yes".
    write_tiny(tmp_path / "model")
    _edit(tmp_path / "model" / "config.json", eos_token_id=[2, 7])
    _edit(tmp_path / "model" / "generation_config.json", eos_token_id=[9, 11])
    yes = tiny_tokenizer()(" yes")["input_ids"][0]
    policy = _load(tmp_path / "model", stop_tokens=("Ġyes", "<|endoftext|>"))
    assert policy.stop_token_ids == tuple(sorted({2, 7, 9, 11, yes, 0}))
    # A text that is one token may be written as it reads.
    assert yes in _load(tmp_path / "model", stop_tokens=(" yes",)).stop_token_ids
    newline = tiny_tokenizer()("\n")["input_ids"][0]
    assert newline in _load(tmp_path / "model", stop_tokens=("\n",)).stop_token_ids


def test_stop_ids_outside_the_vocabulary_are_left_out(tmp_path: Path) -> None:
    write_tiny(tmp_path / "model")
    _edit(tmp_path / "model" / "generation_config.json", eos_token_id=[2, 50256])
    assert _load(tmp_path / "model").stop_token_ids == (2,)


@pytest.mark.parametrize("token", ["<|im_edn|>", "<padd>", "two words", ""])
def test_a_stop_token_with_a_typing_error(tmp_path: Path, token: str) -> None:
    write_tiny(tmp_path / "model")
    with pytest.raises(
        ConfigError, match=r"^rollout\.stop_tokens: .*not a token of the tokenizer's vocabulary"
    ):
        _load(tmp_path / "model", stop_tokens=(token,))


def test_a_near_name_is_offered(tmp_path: Path) -> None:
    write_tiny(tmp_path / "model")
    with pytest.raises(ConfigError, match=r"did you mean '<\|im_end\|>'"):
        _load(tmp_path / "model", stop_tokens=("<|im_edn|>",))


def test_no_stop_token_at_all(tmp_path: Path) -> None:
    write_tiny(tmp_path / "model")
    for file in ("config.json", "generation_config.json"):
        _edit(tmp_path / "model" / file, eos_token_id=None)
    _edit(tmp_path / "model" / "tokenizer_config.json", eos_token=None)
    with pytest.raises(ModelError, match=r"name one in rollout\.stop_tokens"):
        _load(tmp_path / "model")
    policy = _load(tmp_path / "model", stop_tokens=("<|im_end|>",))
    assert policy.stop_token_ids == (2,)


def test_pad_token_as_a_list(tmp_path: Path) -> None:
    # Case f07: transformers itself refuses such a configuration.
    write_tiny(tmp_path / "model")
    for file in ("config.json", "generation_config.json"):
        _edit(tmp_path / "model" / file, pad_token_id=[3])
    _edit(tmp_path / "model" / "tokenizer_config.json", pad_token=None)
    policy = _load(tmp_path / "model")
    assert policy.pad_token_id == policy.tokenizer.pad_token_id == 3
    assert policy.model.generation_config.pad_token_id == 3


def test_pad_token_by_name_and_with_a_typing_error(tmp_path: Path) -> None:
    write_tiny(tmp_path / "model")
    policy = _load(tmp_path / "model", pad_token="<|endoftext|>")
    assert (policy.pad_token_id, policy.tokenizer.pad_token, policy.stop_token_ids) == (
        0,
        "<|endoftext|>",
        (2,),
    )
    # Case f07: an unknown name must not become the unknown token's id, which is 0 here.
    with pytest.raises(ConfigError, match=r"^model\.pad_token: '<padd>' is not a token"):
        _load(tmp_path / "model", pad_token="<padd>")


def test_without_a_pad_token_the_first_stop_token_serves(tmp_path: Path) -> None:
    write_tiny(tmp_path / "model")
    for file in ("config.json", "generation_config.json"):
        _edit(tmp_path / "model" / file, pad_token_id=None)
    _edit(tmp_path / "model" / "tokenizer_config.json", pad_token=None)
    policy = _load(tmp_path / "model")
    assert policy.pad_token_id == policy.tokenizer.pad_token_id == 2


def test_generation_defaults_of_the_folder_are_gone(tmp_path: Path) -> None:
    # Case i05.
    write_tiny(tmp_path / "model", weight_scale=0.3)
    _edit(
        tmp_path / "model" / "generation_config.json",
        max_new_tokens=5,
        top_k=1,
        do_sample=True,
        temperature=0.1,
        repetition_penalty=3.0,
    )
    policy = _load(tmp_path / "model")
    settings = policy.model.generation_config
    for name in ("max_new_tokens", "top_k", "do_sample", "temperature", "repetition_penalty", "top_p"):
        assert getattr(settings, name) is None, name
    assert (settings.eos_token_id, settings.pad_token_id, settings.bos_token_id) == (2, 2, 1)
    ids = torch.tensor([[5, 6, 7]])
    torch.manual_seed(0)
    sampled = policy.model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=True, max_new_tokens=20, num_return_sequences=4
    )
    assert sampled.shape[1] > 3 + 5
    assert len({tuple(row.tolist()) for row in sampled}) == 4


@pytest.mark.parametrize(
    ("architecture", "rates"),
    [
        ("llama", {"attention_dropout": 0.5}),
        ("qwen2", {"attention_dropout": 0.5}),
        ("gpt2", {"attn_pdrop": 0.5, "embd_pdrop": 0.5, "resid_pdrop": 0.5}),
    ],
)
def test_dropout_is_off_in_training(tmp_path: Path, architecture: Any, rates: dict[str, float]) -> None:
    write_tiny(tmp_path / "model", architecture=architecture)
    _edit(tmp_path / "model" / "config.json", **rates)
    model = _load(tmp_path / "model").model
    ids = torch.tensor([[5, 6, 7, 8]])
    resting = model(ids).logits
    model.train()
    assert torch.equal(model(ids).logits, resting)
    assert {getattr(model.config, name) for name in rates} == {0.0}


def test_the_pad_tokens_embedding_is_trained_when_it_is_the_stop_token(tmp_path: Path) -> None:
    # 2 ends turns and pads; as an input it must have its gradient like any other token.
    write_tiny(tmp_path / "model", tied=False)
    model = _load(tmp_path / "model").model
    model(torch.tensor([[5, 2, 7]])).logits.square().sum().backward()
    assert model.get_input_embeddings().weight.grad[2].abs().max() > 1e-6


def test_a_context_that_is_not_stated(tmp_path: Path) -> None:
    write_tiny(tmp_path / "model", context_tokens=128)
    assert _load(tmp_path / "model").context_tokens == 128
    write_tiny(tmp_path / "gpt2", architecture="gpt2", context_tokens=96)
    assert _load(tmp_path / "gpt2").context_tokens == 96


def test_the_context_ends_where_rotary_positions_change_with_the_length(tmp_path: Path) -> None:
    """Phi-3.5's do beyond 4,096: a token cached below would not be one of the sequence that goes on above."""
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    longrope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0] * 4,
        "long_factor": [9.0] * 4,
    }
    tokenizer = tiny_tokenizer()
    config = Phi3Config(
        vocab_size=len(tokenizer),
        num_key_value_heads=2,
        max_position_embeddings=256,
        original_max_position_embeddings=24,
        rope_parameters={**longrope, "original_max_position_embeddings": 24},
        pad_token_id=2,
        **shape,
    )
    Phi3ForCausalLM(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    policy = _load(tmp_path / "model")
    assert policy.context_tokens == 24
    ids_T = torch.arange(3, 28)[None]
    with torch.no_grad():
        logits = [policy.model(ids_T[:, :n], use_cache=False).logits[0, :23] for n in (23, 24, 25)]
    assert (logits[0] - logits[1]).abs().max() < 1e-6
    assert (logits[0] - logits[2]).abs().max() > 1e-3, "one more, and all of them change"


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_a_folder_that_asks_for_tuples(tmp_path: Path, architecture: Any) -> None:
    write_tiny(tmp_path / "model", architecture=architecture)
    _edit(tmp_path / "model" / "config.json", return_dict=False)
    model = _load(tmp_path / "model").model
    assert TokenLogprobs(model, longest_tokens=20).shared
    assert model(torch.tensor([[5, 2, 7]])).logits.shape == (1, 3, 366)


def test_another_tokenizer(tmp_path: Path) -> None:
    write_tiny(tmp_path / "model")
    (tmp_path / "words").mkdir()
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<extra>"])
    tokenizer.save_pretrained(tmp_path / "words")
    assert (
        len(load_tokenizer(ModelConfig(name="tiny", tokenizer="words"), base=tmp_path))
        == len(tiny_tokenizer()) + 1
    )
    with pytest.raises(
        ModelError, match=r"has 367 tokens, but the model .* only 366; they do not belong together"
    ):
        _load(tmp_path / "model", tokenizer="words")
    assert len(_load(tmp_path / "model", tokenizer="tiny").tokenizer) == len(tiny_tokenizer())


def test_a_model_without_a_tokenizer(tmp_path: Path) -> None:
    write_tiny(tmp_path / "model")
    for path in (tmp_path / "model").glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ModelError, match=r"model\.tokenizer names another folder"):
        _load(tmp_path / "model")


def test_a_chat_template_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text("{% for m in messages %}[{{ m['content'] }}]{% endfor %}")
    tokenizer = load_tokenizer(ModelConfig(name="tiny", chat_template="t.jinja"), base=tmp_path)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False) == "[Hi]"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff\xfe", "cannot be read"),
        (b"line\n{% for m in %}", "line 2 does not render"),
        (b"{{ nothing.at.all }}", "does not render a user turn"),
        (b"the same for all", "leaves out the text of a user turn"),
    ],
)
def test_a_wrong_chat_template(tmp_path: Path, template: bytes | None, said: str) -> None:
    if template is not None:
        (tmp_path / "t.jinja").write_bytes(template)
    with pytest.raises(ConfigError, match=f"model.chat_template .*{said}"):
        load_tokenizer(ModelConfig(name="tiny", chat_template="t.jinja"), base=tmp_path)


def _without_a_tensor(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: (f / "model.safetensors").unlink(), "cannot be read: OSError"),
        (lambda f: (f / "model.safetensors").write_bytes(b"garbage garbage"), "cannot be read"),
        (lambda f: (f / "config.json").write_text("{"), "cannot be read"),
        (lambda f: _edit(f / "config.json", model_type="no_such_kind"), "cannot be read"),
        (lambda f: _edit(f / "config.json", hidden_size=32), "cannot be read"),
        (lambda f: _edit(f / "config.json", model_type="t5"), "cannot be read"),
        (
            _without_a_tensor,
            r"lacks the weights of 1 of its parameters, for example model\.layers\.1\.mlp\.up_proj",
        ),
        (
            lambda f: _edit(f / "config.json", quantization_config={"quant_method": "gptq", "bits": 4}),
            "is quantised, so its weights cannot be trained",
        ),
        (
            lambda f: _edit(f / "config.json", model_type="own", auto_map={"AutoConfig": "own.Own"}),
            r"model\.trust_remote_code=true if you trust it",
        ),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "the tokenizer of .* cannot be read"),
    ],
)
def test_damaged_folders(tmp_path: Path, damage: Callable[[Path], Any], said: str) -> None:
    folder = write_tiny(tmp_path / "model")
    damage(folder)
    with pytest.raises(ModelError, match=said) as caught:
        _load(folder)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_device("cpu") == torch.device("cpu")
    for name in ("gpu", "cuda:x", "meta", ""):
        with pytest.raises(ConfigError, match=r"model\.device .* is not a device"):
            resolve_device(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert resolve_device("auto") == torch.device("cpu")
    with pytest.raises(ConfigError, match="torch sees no CUDA device"):
        resolve_device("cuda")
    with pytest.raises(ConfigError, match=r"reference\.device is mps, but this machine has none"):
        resolve_device("mps", "reference.device")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert resolve_device("auto") == torch.device("mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert resolve_device("auto") == torch.device("cuda", 1)
    assert resolve_device("cuda:0") == torch.device("cuda", 0)
    with pytest.raises(ConfigError, match="the devices here are cuda:0 to cuda:1"):
        resolve_device("cuda:2")


def test_lora_is_attached(tmp_path: Path) -> None:
    policy = _load(write_tiny(tmp_path / "model"), lora=LoraConfig(rank=2))
    assert policy.lora
    trained = [n for n, p in policy.model.named_parameters() if p.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)


@pytest.mark.long
def test_the_embedded_model(tmp_path: Path) -> None:
    policy = load_policy(ModelConfig(device="cpu"), lora=None, base=tmp_path, seed=0)
    assert (policy.name, policy.stop_token_ids, policy.pad_token_id) == ("smollm2-135m", (2,), 2)
    assert policy.context_tokens == 8192
    assert policy.model.num_parameters() == 134515008
