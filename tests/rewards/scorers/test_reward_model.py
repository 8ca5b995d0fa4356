import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from groupwise.config.rewards import RewardConfig
from groupwise.errors import ConfigError, ModelError, RewardError
from groupwise.model.tiny import build_tiny, tiny_tokenizer
from groupwise.rewards import Rewards, build
from groupwise.rewards.scorers.reward_model import reward_model
from groupwise.rewards.sequence_scorer import SequenceScorer, load_scorer
from tests.rewards.examples import HERE, pairs, values

TEXTS = ["yes", "no, that is not it at all", "", "The answer is 4.", "ünïcode 🎉"]


def classifier(folder: Path, *, labels: int = 1, pad: int | None = None, **shape: Any) -> Path:
    """A real sequence classifier of random weights, with its tokenizer."""
    from transformers import LlamaConfig, LlamaForSequenceClassification

    tokenizer = tiny_tokenizer()
    torch.manual_seed(3)
    config = LlamaConfig(
        **{
            "vocab_size": len(tokenizer),
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "max_position_embeddings": 128,
            "initializer_range": 0.3,
            "pad_token_id": pad,
            "num_labels": labels,
            **shape,
        }
    )
    LlamaForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    load_scorer.cache_clear()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classifier(tmp_path_factory.mktemp("rm") / "model")


def asked(model: Path | str, *, base: Path = HERE, on_failure: str = "drop", **settings: Any) -> Rewards:
    given = {"model": str(model), "device": "cpu", **settings}
    return build([RewardConfig(name="reward_model", settings=given, on_failure=on_failure)], base=base)


def by_transformers(folder: Path, text: str | None, turns: list[dict[str, str]] | None = None) -> list[float]:
    """What transformers says of one row alone."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    ids = (
        tokenizer(text)["input_ids"]
        if turns is None
        else tokenizer.apply_chat_template(turns, tokenize=True, return_dict=True)["input_ids"]
    )
    with torch.inference_mode():
        row: list[float] = model(torch.tensor([ids])).logits[0].tolist()
    return row


def test_the_prompt_is_read_too_through_the_models_own_template(folder: Path) -> None:
    got = values(asked(folder), TEXTS, chat=True)
    for i, text in enumerate(TEXTS):
        turns = [{"role": "user", "content": f"question {i}"}, {"role": "assistant", "content": text}]
        assert got[i] == pytest.approx(by_transformers(folder, None, turns)[0], abs=1e-5)
    assert len({round(value or 0.0, 4) for value in got}) == len(TEXTS)
    assert values(asked(folder), TEXTS) == pytest.approx(got, abs=1e-5)  # a text prompt is the user's turn
    other = asked(folder).score_batch(_batch("another question", TEXTS[0]))[0].reward
    assert other != pytest.approx(got[0], abs=1e-3)


def _batch(prompt: Any, completion: str) -> Any:
    from groupwise.rewards.batch import Batch

    return Batch(
        prompts=[prompt], completions=[completion], completion_ids=None, stop_reasons=None, columns={}
    )


@pytest.mark.parametrize("batch_tokens", [1, 40, 100, 10_000])
def test_a_score_does_not_depend_on_what_is_beside_it(folder: Path, batch_tokens: int) -> None:
    sizes: list[tuple[int, ...]] = []
    single = values(asked(folder, batch_tokens=1), TEXTS, chat=True)
    rewards = asked(folder, batch_tokens=batch_tokens)
    scorer = load_scorer(
        str(folder), revision=None, device="cpu", dtype="float32", bits=None, trust_remote_code=False
    )
    hook = scorer.model.register_forward_pre_hook(
        lambda module, args, kwargs: sizes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    together = values(rewards, TEXTS, chat=True)
    hook.remove()
    assert together == pytest.approx(single, abs=1e-5)
    assert sum(rows for rows, _ in sizes) == len(TEXTS)
    assert all(rows * width <= batch_tokens or rows == 1 for rows, width in sizes)
    assert len(sizes) == {1: 5, 40: len(sizes), 100: len(sizes), 10_000: 1}[batch_tokens]


@pytest.mark.parametrize("pad", [None, 2])
def test_padding_takes_no_row_for_another(tmp_path: Path, pad: int | None) -> None:
    """Whether the folder states a pad token, one that also ends a turn, or none at all."""
    folder = classifier(tmp_path / "model", pad=pad)
    texts = ["a b c", "a <|im_end|>", "longer than both of them"]
    got = values(asked(folder, join="text"), texts)
    wanted = [by_transformers(folder, f"question {i}{text}")[0] for i, text in enumerate(texts)]
    assert got == pytest.approx(wanted, abs=1e-5)


def test_without_a_template_prompt_and_completion_are_a_pair(tmp_path: Path) -> None:
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "question", "yes", "no", "##0", "0", "1", "user"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    folder = tmp_path / "bert"
    tokenizer = BertTokenizerFast(vocab_file=str(tmp_path / "vocab.txt"))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32, num_labels=1, initializer_range=0.5,
    )  # fmt: skip
    BertForSequenceClassification(config).eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.inference_mode():
        wanted = [
            model(**tokenizer(f"question {i}", text, return_tensors="pt")).logits.item()
            for i, text in enumerate(["yes", "no no no"])
        ]
    assert values(asked(folder), ["yes", "no no no"]) == pytest.approx(wanted, abs=1e-5)
    scorer = load_scorer(
        str(folder), revision=None, device="cpu", dtype="float32", bits=None, trust_remote_code=False
    )
    assert scorer.encode("question 1", "yes", join="auto")["token_type_ids"][-2:] == [1, 1]
    with pytest.raises(ConfigError, match=r"join is chat, but the tokenizer of .* has no chat template"):
        values(asked(folder, join="chat"), ["yes"])


def test_several_outputs_need_a_label(tmp_path: Path) -> None:
    names = {0: "bad", 1: "good", 2: "unsure"}
    folder = classifier(
        tmp_path / "model", labels=3, id2label=names, label2id={v: k for k, v in names.items()}
    )
    turns = [{"role": "user", "content": "question 0"}, {"role": "assistant", "content": "yes"}]
    logits = torch.tensor(by_transformers(folder, None, turns))
    assert values(asked(folder, label="good"), ["yes"]) == pytest.approx([logits[1].item()], abs=1e-5)
    assert values(asked(folder, label=2), ["yes"]) == pytest.approx([logits[2].item()], abs=1e-5)
    chance = logits.softmax(-1)[1].item()
    assert values(asked(folder, label="good", output="probability"), ["yes"]) == pytest.approx(
        [chance], abs=1e-5
    )
    with pytest.raises(ConfigError, match="has the outputs bad, good, unsure; choose one with label"):
        values(asked(folder), ["yes"])
    with pytest.raises(ConfigError, match="has no output 'goood'; did you mean 'good'"):
        values(asked(folder, label="goood"), ["yes"])


def test_the_probability_of_a_single_output_is_its_sigmoid(folder: Path) -> None:
    (logit,) = values(asked(folder), ["yes"])
    assert logit is not None
    (chance,) = values(asked(folder, output="probability"), ["yes"])
    assert chance == pytest.approx(torch.tensor(logit).sigmoid().item(), abs=1e-6)


def test_too_long_a_row_fails_alone(folder: Path) -> None:
    verdicts = asked(folder, max_tokens=30).score(*pairs(["yes", "yes " * 50, "no"], chat=True))
    assert [v.reward is None for v in verdicts] == [False, True, False]
    assert "tokens; the reward model reads 1 to 30" in (verdicts[1].failure or "")
    assert "reads 1 to 128" in (asked(folder).score(*pairs(["a", "yes " * 200]))[1].failure or "")


def test_a_template_that_refuses_a_conversation_fails_that_row(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = classifier(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system turns') }}{% endif %}"
        "{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    tokenizer.save_pretrained(folder)
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    with pytest.raises(RewardError, match=r"the reward model's template refuses it .*no system turns"):
        asked(folder).score_batch(_batch(turns, "yes"))


def test_a_folder_without_a_head_is_refused_before_a_run(tmp_path: Path) -> None:
    model, tokenizer = build_tiny(0)
    model.save_pretrained(tmp_path / "policy")
    tokenizer.save_pretrained(tmp_path / "policy")
    with pytest.raises(
        ConfigError, match=r"is a language model \(LlamaForCausalLM\), without a head that scores"
    ):
        asked("policy", base=tmp_path)


def test_a_head_of_random_numbers_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = classifier(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    del weights["score.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        ModelError, match=r"lacks weights of its own for score.weight, which would be random numbers"
    ):
        values(asked(folder), ["a", "b"])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": " "}, "model is missing"),
        ({"model": "./nothing"}, "the reward model './nothing': there is no"),
        ({"model": "tiny"}, "the reward model 'tiny' is a language model"),
        ({"bits": 3}, "bits: 3 should be 4 or 8"),
        ({"batch_tokens": 0}, "batch_tokens"),
        ({"dtype": "int8"}, "dtype"),
        ({"join": "both"}, "join"),
    ],
)
def test_wrong_settings_have_a_sentence(settings: dict[str, Any], said: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        asked(**{"model": folder, **settings})


def test_a_folder_is_relative_to_the_configuration(tmp_path: Path) -> None:
    classifier(tmp_path / "models" / "rm")
    assert values(asked("models/rm", base=tmp_path), ["yes"])[0] is not None


def test_loading_leaves_the_random_state_alone(folder: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    values(asked(folder), ["yes"])
    assert torch.equal(torch.get_rng_state(), before)


def test_a_device_that_is_not_there_is_one_sentence(folder: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(
        ConfigError, match="device of the reward model is cuda, but torch sees no CUDA device here"
    ):
        values(asked(folder, device="cuda"), ["a"])


def test_bfloat16_is_near(folder: Path) -> None:
    wide = values(asked(folder), TEXTS[:2])
    narrow = values(asked(folder, dtype="bfloat16"), TEXTS[:2])
    assert narrow == pytest.approx(wide, rel=0.1, abs=0.1)
    assert narrow != wide


def test_without_bitsandbytes_its_bits_have_a_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "bitsandbytes" else found(name)
    )
    with pytest.raises(
        ConfigError, match=r"bits is 8, but bitsandbytes is not installed; pip install 'groupwise\[quant\]'"
    ):
        asked(folder, bits=8)


@pytest.mark.parametrize("bits", [8, 4])
def test_quantised_weights_score_about_alike(folder: Path, bits: int) -> None:
    pytest.importorskip("bitsandbytes")
    whole = values(asked(folder), TEXTS)
    rewards = asked(folder, bits=bits)
    got = values(rewards, TEXTS)
    scorer = load_scorer(
        str(folder), revision=None, device="cpu", dtype="float32", bits=bits, trust_remote_code=False
    )
    kinds = {type(module).__name__ for module in scorer.model.modules()}
    assert {8: "Linear8bitLt", 4: "Linear4bit"}[bits] in kinds
    assert type(scorer.model.score).__name__ == "Linear"  # the head keeps its precision
    assert got != whole
    assert got == pytest.approx(whole, abs={8: 0.3, 4: 2.0}[bits])


def test_it_is_a_plain_function_too(folder: Path) -> None:
    assert reward_model(["q"], ["yes"], model=str(folder), device="cpu") == pytest.approx(
        [
            by_transformers(
                folder, None, [{"role": "user", "content": "q"}, {"role": "assistant", "content": "yes"}]
            )[0]
        ],
        abs=1e-5,
    )
    assert isinstance(
        load_scorer(
            str(folder), revision=None, device="cpu", dtype="float32", bits=None, trust_remote_code=False
        ),
        SequenceScorer,
    )
