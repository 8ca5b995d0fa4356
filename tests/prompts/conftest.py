"""Small real tokenizers, built on the spot: byte-level BPE with ChatML turns, and variants of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

TURN_START, TURN_END, BOS = "<|im_start|>", "<|im_end|>", "<|begin|>"
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SENTENCES = (
    "What is 2 plus 2? Answer with a number.",
    "You are a helpful assistant who answers in one word.",
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May.",
    "How many clips did Natalia sell altogether in April and May?",
    "system user assistant one two three four five six seven eight nine ten",
    "one<|two<|three<|four",  # so that a piece of a control string is a token of its own
)


def build(
    *, bos: bool = False, special: bool = True, template: str | None = CHATML, whole_alphabet: bool = True
) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer trained on `SENTENCES`.

    Args:
        bos: add `<|begin|>` before every text, through the post-processor.
        special: declare the turn marks special; otherwise they are added tokens that are not.
        template: the chat template; with `bos` it writes the begin-of-text token itself.
        whole_alphabet: without it, bytes that are not in `SENTENCES` are left out, so some texts encode to nothing.
    """
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if whole_alphabet else [],
        show_progress=False,
    )
    backend.train_from_iterator(SENTENCES * 3, trainer)
    end_of_text = "<|endoftext|>"
    backend.add_special_tokens([AddedToken(end_of_text, special=True, normalized=False)])
    marks = [AddedToken(mark, special=special, normalized=False) for mark in (TURN_START, TURN_END)]
    (backend.add_special_tokens if special else backend.add_tokens)(marks)
    backend.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    names = {"eos_token": TURN_END if special else end_of_text, "pad_token": end_of_text}
    if bos:
        backend.add_special_tokens([AddedToken(BOS, special=True, normalized=False)])
        backend.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A", special_tokens=[(BOS, backend.token_to_id(BOS))]
        )
        names["bos_token"] = BOS
        template = None if template is None else "{{ bos_token }}" + template
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **names)
    tokenizer.chat_template = template
    return tokenizer


@pytest.fixture(scope="session")
def build_tokenizer() -> Callable[..., PreTrainedTokenizerFast]:
    return build


@pytest.fixture(scope="session")
def chatml() -> PreTrainedTokenizerFast:
    return build()


@pytest.fixture(scope="session")
def with_bos() -> PreTrainedTokenizerFast:
    return build(bos=True)
