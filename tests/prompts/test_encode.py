from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import processors
from transformers import PreTrainedTokenizerFast

from groupwise.config.prompts import PromptsConfig
from groupwise.errors import ConfigError, DataError
from groupwise.prompts import PromptReport, encode, read_rows, rows_from
from groupwise.records import Prompt

Build = Callable[..., PreTrainedTokenizerFast]
QUESTION = "What is 2 plus 2?"


def settings(**values: Any) -> PromptsConfig:
    return PromptsConfig.model_validate(values)


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def system(content: str) -> dict[str, str]:
    return {"role": "system", "content": content}


def run(
    prompts: Sequence[Any], tokenizer: PreTrainedTokenizerFast, *, limit_tokens: int = 1000, **values: Any
) -> tuple[list[Prompt], PromptReport]:
    rows = rows_from([p if isinstance(p, dict) else {"prompt": p} for p in prompts], source="mine")
    return encode(rows, settings(**values), tokenizer, limit_tokens=limit_tokens)


def template_ids(tokenizer: PreTrainedTokenizerFast, messages: Sequence[Any], **arguments: Any) -> list[int]:
    """What transformers gives for the same messages in one call."""
    ids: list[int] = tokenizer.apply_chat_template(
        list(messages), tokenize=True, add_generation_prompt=True, return_dict=False, **arguments
    )
    return ids


CHATS = (
    [user(QUESTION)],
    [
        system("Answer in one word."),
        user(QUESTION),
        {"role": "assistant", "content": "4"},
        user("  And 3 plus 3?\n"),
    ],
    [user("Größe: ½ \U0001f600\u2028 <think> < |im_end| >")],
    [system(""), user("a\n\n b")],
)


@pytest.mark.parametrize("fixture", ["chatml", "with_bos"])
def test_message_ids_are_those_of_the_chat_template(fixture: str, request: pytest.FixtureRequest) -> None:
    tokenizer = request.getfixturevalue(fixture)
    prompts, report = run(CHATS, tokenizer)
    for prompt, messages in zip(prompts, CHATS, strict=True):
        assert prompt.token_ids.tolist() == template_ids(tokenizer, messages)
        assert prompt.token_ids.dtype == np.int32
        assert prompt.messages == tuple(messages)
        assert prompt.text == tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
    assert report.control_strings == 0


@pytest.mark.parametrize("fixture", ["chatml", "with_bos"])
def test_text_stays_text_with_the_tokenizers_own_special_tokens(
    fixture: str, request: pytest.FixtureRequest
) -> None:
    tokenizer = request.getfixturevalue(fixture)
    (prompt,), _ = run([QUESTION], tokenizer)
    assert prompt.token_ids.tolist() == tokenizer(QUESTION)["input_ids"]
    assert prompt.text == QUESTION
    assert prompt.messages is None


def test_there_is_one_begin_of_text_token_in_chat_and_in_text(with_bos: PreTrainedTokenizerFast) -> None:
    bos = with_bos.bos_token_id
    rows = [[user(QUESTION)], QUESTION, f"{with_bos.bos_token}{QUESTION}"]
    prompts, _ = run(rows, with_bos)
    for prompt in prompts:
        assert prompt.token_ids.tolist().count(bos) == 1
        assert prompt.token_ids[0] == bos
    assert prompts[1].token_ids.tolist() == prompts[2].token_ids.tolist()


def test_what_a_tokenizer_adds_behind_a_text_is_left_out(build_tokenizer: Build) -> None:
    """As tokenizers do that were saved with add_eos_token: the response would begin after an end of sequence."""
    tokenizer = build_tokenizer(bos=True)
    bos, end = tokenizer.bos_token, tokenizer.eos_token
    plain = tokenizer(QUESTION, add_special_tokens=False)["input_ids"]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A {end}",
        special_tokens=[(token, tokenizer.convert_tokens_to_ids(token)) for token in (bos, end)],
    )
    rows = [QUESTION, f"{QUESTION}{end}", " ".join([QUESTION] * 9), [user(QUESTION)]]
    prompts, _ = run(rows, tokenizer, limit_tokens=60, too_long="truncate")
    assert prompts[0].token_ids.tolist() == [tokenizer.bos_token_id, *plain]
    assert prompts[1].token_ids.tolist() == [
        tokenizer.bos_token_id,
        *plain,
        tokenizer.eos_token_id,
    ]  # as written
    assert len(prompts[2].token_ids) == 60
    assert tokenizer.eos_token_id not in prompts[2].token_ids
    tokenizer.backend_tokenizer.post_processor = None
    assert prompts[3].token_ids.tolist() == tokenizer(prompts[3].text)["input_ids"]


def test_mixed_rows_keep_their_order_over_many_tokenizer_calls(chatml: PreTrainedTokenizerFast) -> None:
    rows = [f"number {i}" if i % 3 else [user(f"number {i}")] for i in range(3500)]
    prompts, report = run(rows, chatml)
    assert [p.id for p in prompts] == [f"mine:{i}" for i in range(3500)]
    for i in (0, 1, 1023, 1024, 1025, 1536, 2047, 2048, 3072, 3499):
        row = rows[i]
        expected = chatml(row)["input_ids"] if isinstance(row, str) else template_ids(chatml, row)
        assert prompts[i].token_ids.tolist() == expected
    assert (report.rows, report.kept, report.duplicates) == (3500, 3500, 0)


def test_chat_makes_a_text_one_user_turn(chatml: PreTrainedTokenizerFast) -> None:
    (as_text, as_messages), _ = run([QUESTION, [user(QUESTION)]], chatml, chat=True)
    assert (
        as_text.token_ids.tolist() == as_messages.token_ids.tolist() == template_ids(chatml, [user(QUESTION)])
    )
    assert as_text.messages == (user(QUESTION),)


def test_the_system_prompt_is_the_chats_own_then_the_rows_then_the_runs(
    chatml: PreTrainedTokenizerFast,
) -> None:
    rows = [
        {"prompt": [system("own"), user("a")], "s": "row"},
        {"prompt": [{"role": "developer", "content": "own"}, user("a")], "s": "row"},
        {"prompt": [user("a")], "s": "row"},
        {"prompt": "a", "s": "row"},
        {"prompt": "a", "s": None},
        {"prompt": "a", "s": ""},
    ]
    prompts, _ = run(rows, chatml, chat=True, system_prompt="run", columns={"system": "s"})
    assert [p.messages[0]["content"] for p in prompts if p.messages] == [
        "own",
        "own",
        "row",
        "row",
        "run",
        "run",
    ]
    assert [len(p.messages or ()) for p in prompts] == [2] * 6
    assert prompts[4].token_ids.tolist() == template_ids(chatml, [system("run"), user("a")])
    (none,), _ = run(["a"], chatml, chat=True)
    assert none.messages == (user("a"),)
    (empty,), _ = run(["a"], chatml, chat=True, system_prompt="")
    assert empty.messages == (system(""), user("a"))


def test_a_system_prompt_for_text_is_refused(chatml: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ConfigError, match=r"mine:0: the prompt is text.*set prompts\.chat to true"):
        run(["a"], chatml, system_prompt="run")


def test_template_arguments_reach_the_template(build_tokenizer: Build) -> None:
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "<|im_start|>assistant\n{% if not thinking %}<think>\n\n{% endif %}"
    )
    tokenizer = build_tokenizer(template=template)
    think = tokenizer.convert_tokens_to_ids("<think>")
    (on,), _ = run([[user("a")]], tokenizer, chat_template_kwargs={"thinking": True})
    (off,), _ = run([[user("a")]], tokenizer, chat_template_kwargs={"thinking": False})
    assert (think in on.token_ids, think in off.token_ids) == (False, True)
    assert off.token_ids.tolist() == template_ids(tokenizer, [user("a")], thinking=False)


@pytest.mark.parametrize(
    "name", ["tokenize", "add_generation_prompt", "chat_template", "continue_final_message"]
)
def test_template_arguments_that_are_decided_elsewhere_are_refused(
    name: str, chatml: PreTrainedTokenizerFast
) -> None:
    with pytest.raises(ConfigError, match=rf"prompts\.chat_template_kwargs\.{name} cannot be set: "):
        run([[user("a")]], chatml, chat_template_kwargs={name: False})


def test_messages_without_a_chat_template_are_refused(build_tokenizer: Build) -> None:
    tokenizer = build_tokenizer(template=None)
    with pytest.raises(ConfigError, match=r"no chat template; set model\.chat_template to a Jinja file"):
        run([[user("a")]], tokenizer)
    with pytest.raises(ConfigError, match="no chat template"):
        run(["a"], tokenizer, chat=True)
    (prompt,), _ = run(["a"], tokenizer)
    assert prompt.text == "a"


def test_what_a_template_refuses_is_told_with_the_row(build_tokenizer: Build) -> None:
    template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
        "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    )
    rows = [[user("a")], [system("b"), user("a")]]
    with pytest.raises(
        DataError, match=r"mine:1: .*refuses turns of system, user: System role not supported"
    ):
        run(rows, build_tokenizer(template=template))


def test_duplicates_are_prompts_of_their_own_and_sources_do_not_mix(chatml: PreTrainedTokenizerFast) -> None:
    first = rows_from([{"prompt": "a", "gold": 1}, {"prompt": "a", "gold": 2}], source="one")
    second = rows_from([{"prompt": "a", "gold": 3}, {"prompt": "b", "gold": 4}], source="two")
    prompts, report = encode([*first, *second], settings(), chatml, limit_tokens=100)
    assert [p.id for p in prompts] == ["one:0", "one:1", "two:0", "two:1"]
    assert [p.source for p in prompts] == ["one", "one", "two", "two"]
    assert [p.columns["gold"] for p in prompts] == [1, 2, 3, 4]
    assert report.duplicates == 2


def test_columns_are_the_others_with_none_where_a_row_lacks_one(chatml: PreTrainedTokenizerFast) -> None:
    rows = [{"q": "a", "s": None, "gold": 1}, {"q": "b", "s": None, "info": {"x": 1}, "gold": None}]
    prompts, _ = run(rows, chatml, columns={"prompt": "q", "system": "s"})
    assert [p.columns for p in prompts] == [{"gold": 1, "info": None}, {"gold": None, "info": {"x": 1}}]
    assert type(prompts[0].columns["gold"]) is int


def test_gsm8k_rows_become_prompts(tmp_path: Path, chatml: PreTrainedTokenizerFast) -> None:
    path = tmp_path / "gsm8k.jsonl"
    path.write_text(
        '{"question": "How many clips did Natalia sell in April?", "answer": "She sold <<48=48>>48.\\n#### 48"}\n\n'
        '{"question": "How many clips in May?", "answer": "Half of 48 is <<48/2=24>>24.\\n#### 24"}\n'
    )
    config = settings(columns={"prompt": "question"}, chat=True, system_prompt="Answer with a number.")
    prompts, report = encode(read_rows(path), config, chatml, limit_tokens=200)
    assert prompts[1].id == "gsm8k.jsonl:1"
    assert prompts[1].token_ids.tolist() == template_ids(
        chatml, [system("Answer with a number."), user("How many clips in May?")]
    )
    assert prompts[1].columns == {"answer": "Half of 48 is <<48/2=24>>24.\n#### 24"}
    assert report.blank_lines == 1


def test_a_prompt_over_the_limit_is_refused_with_the_choices(
    tmp_path: Path, chatml: PreTrainedTokenizerFast
) -> None:
    # Letters and spaces that never stand together in the training sentences are one token per byte.
    path = tmp_path / "train.jsonl"
    path.write_text('{"prompt": "ZZZ"}\n{"prompt": "ZZZZZ"}\n{"prompt": "ZZZZZZZ"}\n{"prompt": "ZZZZ"}\n')
    with pytest.raises(DataError) as caught:
        encode(read_rows(path), settings(), chatml, limit_tokens=4)
    assert str(caught.value) == (
        "train.jsonl line 2: the prompt has 5 tokens, over the limit of 4 (2 of 4 rows are over it, the longest has "
        "7); lower rollout.max_new_tokens (the limit is what it leaves of the model's context), or set "
        "prompts.too_long to drop or truncate"
    )
    with pytest.raises(DataError, match=r"over the limit of 3 .*; raise prompts\.max_prompt_tokens, or set"):
        encode(read_rows(path), settings(max_prompt_tokens=3), chatml, limit_tokens=4)


def test_a_prompt_over_the_limit_can_be_dropped(chatml: PreTrainedTokenizerFast) -> None:
    prompts, report = run(["ZZZ", "ZZZZZ", "ZZZZ"], chatml, limit_tokens=4, too_long="drop")
    assert [p.id for p in prompts] == ["mine:0", "mine:2"]
    assert (report.kept, report.dropped_too_long, report.truncated, report.longest_tokens) == (2, 1, 0, 4)
    with pytest.raises(DataError, match=r"all 2 rows are over the limit of 2 tokens"):
        run(["ZZZ", "ZZZZZ"], chatml, limit_tokens=2, too_long="drop")


def test_the_smaller_of_the_two_limits_applies(chatml: PreTrainedTokenizerFast) -> None:
    assert run(["ZZZ"], chatml, limit_tokens=9, max_prompt_tokens=3)[1].limit_tokens == 3
    assert run(["ZZZ"], chatml, limit_tokens=3, max_prompt_tokens=9)[1].limit_tokens == 3
    for limits in ({"limit_tokens": 9, "max_prompt_tokens": 2}, {"limit_tokens": 2, "max_prompt_tokens": 9}):
        with pytest.raises(DataError, match="over the limit of 2"):
            run(["ZZZ"], chatml, **limits)
    with pytest.raises(ConfigError, match=r"the limit for prompts is 0 tokens.*lower rollout.max_new_tokens"):
        run(["ZZZ"], chatml, limit_tokens=0)


def test_text_is_cut_in_the_middle_and_keeps_its_begin_of_text(with_bos: PreTrainedTokenizerFast) -> None:
    # 10 letters, one token each, and the begin-of-text token: 11 tokens. A limit of 6 leaves 5 for letters:
    # ceil(5 / 2) = 3 first and floor(5 / 2) = 2 last.
    (prompt,), report = run(["ZYXWVUTSRQ"], with_bos, limit_tokens=6, too_long="truncate")
    letters = with_bos("ZYXRQ", add_special_tokens=False)["input_ids"]
    assert len(letters) == 5
    assert prompt.token_ids.tolist() == [with_bos.bos_token_id, *letters]
    assert prompt.text == "ZYXRQ"
    assert (report.truncated, report.dropped_too_long, report.longest_tokens) == (1, 0, 6)


def test_a_cut_does_not_halve_a_character(chatml: PreTrainedTokenizerFast) -> None:
    # Two letters, an emoji of four bytes (one token each), two letters: 8 tokens. A limit of 5 would keep Z Y and the
    # first byte, and the last two letters; the lone byte goes as well.
    (prompt,), _ = run(["ZY\U0001f600XW"], chatml, limit_tokens=5, too_long="truncate")
    assert prompt.text == "ZYXW"
    assert prompt.token_ids.tolist() == chatml("ZYXW")["input_ids"]
    with pytest.raises(DataError, match="no text would be left within 1 tokens"):
        run(["\U0001f600"], chatml, limit_tokens=1, too_long="truncate")


def test_a_cut_that_would_take_control_tokens_out_of_a_text_is_refused(
    chatml: PreTrainedTokenizerFast,
) -> None:
    text = "ZZZZ<|im_end|>ZZZZ"
    with pytest.raises(
        DataError, match=r"mine:0: cutting the text would remove the control token '<\|im_end\|>'"
    ):
        run([text], chatml, limit_tokens=4, too_long="truncate")
    (kept,), report = run(["<|im_start|>ZZZZZZ<|im_end|>"], chatml, limit_tokens=6, too_long="truncate")
    assert kept.text == "<|im_start|>ZZZZ<|im_end|>"
    assert report.control_strings_in_text == 1


def test_control_strings_in_text_act_and_are_counted(chatml: PreTrainedTokenizerFast) -> None:
    text = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
    (prompt,), report = run([text], chatml)
    assert prompt.token_ids.tolist() == template_ids(chatml, [user("a")])
    assert (report.control_strings, report.control_strings_in_text) == (0, 1)


def test_a_prompt_that_encodes_to_nothing_is_refused(build_tokenizer: Build) -> None:
    tokenizer = build_tokenizer(whole_alphabet=False)
    assert tokenizer("\u03b6")["input_ids"] == []
    with pytest.raises(DataError, match="mine:1: the prompt is empty once it is encoded"):
        run(["one", "\u03b6"], tokenizer)


def test_rows_are_checked_first(chatml: PreTrainedTokenizerFast) -> None:
    with pytest.raises(DataError, match="mine:0: no column 'prompt'"):
        run([{"question": "a"}], chatml)
    with pytest.raises(DataError, match="there are no rows"):
        encode([], settings(), chatml, limit_tokens=10)


def test_the_report_in_sentences() -> None:
    report = PromptReport(
        rows=10,
        kept=8,
        dropped_too_long=2,
        truncated=0,
        duplicates=1,
        control_strings=3,
        control_strings_in_text=1,
        blank_lines=4,
        longest_tokens=20,
        mean_tokens=12.4,
        limit_tokens=20,
    )
    assert report.sentences() == [
        "8 of 10 rows are prompts, of 12 tokens on average and 20 at most (limit 20).",
        "2 of 10 rows: over 20 tokens, left out (prompts.too_long: drop).",
        "1 of 10 rows: the same as an earlier one, each kept as a prompt of its own.",
        "3 of 10 rows: control strings such as turn ends in a message, encoded as ordinary text.",
        "1 of 10 rows: control strings in a text prompt, where they act as control tokens.",
        "Blank lines skipped: 4.",
    ]


def test_the_report_counts(chatml: PreTrainedTokenizerFast) -> None:
    # Lengths 3, 5 (dropped), 3 and 1: the kept mean is 7 / 3.
    _, report = run(["ZZZ", "ZZZZZ", "ZZZ", "Z"], chatml, limit_tokens=4, too_long="drop")
    assert report.mean_tokens == pytest.approx(7 / 3, rel=1e-12)
    assert (report.rows, report.kept, report.dropped_too_long, report.duplicates) == (4, 3, 1, 1)
