from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from groupwise.errors import ModelError
from groupwise.model import gguf_file
from groupwise.model.gguf_file import read_gguf, read_gguf_tokenizer
from groupwise.model.tiny import tiny_tokenizer
from tests.model.tiny_gguf import permute, unpermute, write_tiny_gguf


def test_weights_are_what_the_blocks_unpack_to(tmp_path: Path) -> None:
    held = write_tiny_gguf(tmp_path / "tiny.gguf")
    model_class, config, weights = read_gguf(tmp_path / "tiny.gguf")
    assert set(weights) == set(held)
    for name, expected in held.items():
        assert torch.equal(weights[name], expected), name
    assert model_class.__name__ == "LlamaForCausalLM"
    assert (config.num_attention_heads, config.num_key_value_heads, config.eos_token_id) == (4, 2, 2)


def test_permutation_is_not_its_own_inverse_and_is_undone() -> None:
    # One head of six rows: rows 0 1 2 | 3 4 5 are paired (0, 3), (1, 4), (2, 5) in llama.cpp's order.
    rows = torch.arange(6.0).reshape(6, 1).numpy()
    assert permute(rows, 1)[:, 0].tolist() == [0, 3, 1, 4, 2, 5]
    assert unpermute(permute(rows, 1), 1)[:, 0].tolist() == [0, 1, 2, 3, 4, 5]


def test_the_model_is_plain_tied_trainable_and_can_be_saved(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "tiny.gguf")
    model_class, config, weights = read_gguf(tmp_path / "tiny.gguf")
    assert not hasattr(config, "quantization_config")
    model = model_class.from_pretrained(None, config=config, state_dict=weights, dtype=torch.float32)
    assert getattr(model, "hf_quantizer", None) is None
    assert not getattr(model, "is_quantized", False)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    logits = model(torch.tensor([[5, 6, 7]])).logits
    logits.sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    model.save_pretrained(tmp_path / "saved")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert torch.equal(again(torch.tensor([[5, 6, 7]])).logits, logits)


def test_tokenizer_splits_digits_before_anything_else(tmp_path: Path) -> None:
    # Two blanks before a digit stay together: digits are split off first, so both blanks are a piece of their own.
    # Left to GPT-2's pattern, one of them would go to the digit.
    write_tiny_gguf(tmp_path / "tiny.gguf")
    tokenizer = read_gguf_tokenizer(tmp_path / "tiny.gguf")
    for text in ("What is 12 + 3?", "a  5", "x\n\n7", "naïve 😀", "<|im_start|>user\n1<|im_end|>\n"):
        assert tokenizer(text)["input_ids"] == tiny_tokenizer()(text)["input_ids"]
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    pieces = [piece for piece, _ in tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("a  5")]
    assert pieces == ["a", "ĠĠ", "5"]
    assert (tokenizer.eos_token, tokenizer.pad_token_id, tokenizer.bos_token) == (
        "<|im_end|>",
        2,
        "<|im_start|>",
    )
    turn = [{"role": "user", "content": "Hi"}]
    rendered = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    assert rendered == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_another_pre_tokenizer_is_left_as_transformers_reads_it(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "tiny.gguf", pre="default")
    tokenizer = read_gguf_tokenizer(tmp_path / "tiny.gguf")
    pieces = [piece for piece, _ in tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("a  5")]
    assert pieces == ["a", "Ġ", "Ġ5"]


def test_no_bar_is_drawn(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_tiny_gguf(tmp_path / "tiny.gguf")
    capfd.readouterr()
    read_gguf(tmp_path / "tiny.gguf")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model at all, but long enough to be looked at"])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"broken\.gguf cannot be read"):
        read_gguf(path)
    with pytest.raises(ModelError, match=r"broken\.gguf cannot be read"):
        read_gguf_tokenizer(path)


def test_a_file_cut_short(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "whole.gguf")
    content = (tmp_path / "whole.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match=r"cut\.gguf cannot be read"):
        read_gguf(tmp_path / "cut.gguf")


def test_without_the_gguf_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_file.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install 'groupwise\[demo\]'"):
        read_gguf(tmp_path / "tiny.gguf")
