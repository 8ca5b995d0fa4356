from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from groupwise.model.tiny import build_tiny, tiny_tokenizer, write_tiny

TEXTS = (
    "What is 47 + 38?",
    "a  5\n\n6",
    "naïve 😀 ½",
    "<|im_start|>user\nhello<|im_end|>\n",
    " the answer is",
    "",
)


def test_the_seed_decides_the_weights_and_the_global_random_state_is_left_alone() -> None:
    torch.manual_seed(123)
    expected = torch.rand(3)
    torch.manual_seed(123)
    first, _ = build_tiny(7)
    assert torch.equal(torch.rand(3), expected)
    second, _ = build_tiny(7)
    other, _ = build_tiny(8)
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, second.state_dict()[name])
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


def test_the_tokenizer_encodes_any_text_without_loss() -> None:
    tokenizer = tiny_tokenizer()
    assert len(tokenizer) < 600
    for text in TEXTS:
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_special_tokens_are_those_of_smollm2() -> None:
    tokenizer = tiny_tokenizer()
    assert (tokenizer.unk_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    assert tokenizer.pad_token_id == 2
    turn = [{"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer(text)["input_ids"].count(2) == 1


def test_a_word_can_be_spelled_in_two_ways() -> None:
    # Sampled ids need not be those that the tokenizer would choose: " answer" as one token, or as " " + "answer".
    tokenizer = tiny_tokenizer()
    joined = tokenizer(" answer")["input_ids"]
    apart = [i for letter in " answer" for i in tokenizer(letter)["input_ids"]]
    assert (len(joined), len(apart)) == (1, 7)
    assert tokenizer.decode(apart) == tokenizer.decode(joined)


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen2"])
def test_saved_and_loaded_it_is_the_same(tmp_path: Path, architecture: str) -> None:
    model, tokenizer = build_tiny(1, architecture=architecture)
    folder = write_tiny(tmp_path / "model", 1, architecture=architecture)
    loaded, reader = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    ids = torch.tensor([tokenizer(TEXTS[0])["input_ids"]])
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    for text in TEXTS:
        assert reader(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert reader.chat_template == tokenizer.chat_template
    assert loaded.lm_head.weight is loaded.get_input_embeddings().weight


def test_width_depth_ties_and_spread() -> None:
    small, _ = build_tiny(hidden=32, layers=1, tied=False, weight_scale=0.5)
    assert small.config.num_hidden_layers == 1
    assert small.lm_head.weight.shape[1] == 32
    assert small.lm_head.weight is not small.model.embed_tokens.weight
    assert small.lm_head.weight.std().item() == pytest.approx(0.5, rel=0.05)


def test_half_precision_rounds_the_same_weights_and_spares_the_rotary_frequencies() -> None:
    exact, _ = build_tiny(1)
    half, _ = build_tiny(1, dtype=torch.bfloat16)
    assert torch.equal(half.lm_head.weight, exact.lm_head.weight.bfloat16())
    assert torch.equal(half.model.rotary_emb.inv_freq, exact.model.rotary_emb.inv_freq)


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_tiny(tmp_path / "model", architecture="gpt2")
    assert capfd.readouterr() == ("", "")
