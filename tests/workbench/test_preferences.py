"""Rows of preferences in the shapes that people have, to pairs of token ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from groupwise.config import load
from groupwise.config.run import RunConfig
from groupwise.errors import ConfigError, DataError
from groupwise.model.load import Policy
from groupwise.prompts.load import rows_from
from groupwise.records import StopReason
from groupwise.workbench.preferences import encode_pairs, preference_rows, read_preferences


def config_of(**sections: Any) -> RunConfig:
    return load({"method": "dpo", "model": "tiny", **sections}).config


def one_form(row: dict[str, Any], **sections: Any) -> tuple[Any, str, str]:
    (made,) = preference_rows(rows_from([row], source="train"), config_of(**sections))
    return made.columns["prompt"], made.columns["chosen"], made.columns["rejected"]


USER = {"role": "user", "content": "2 + 2?"}
SYSTEM = {"role": "system", "content": "Be brief."}
GOOD, BAD = {"role": "assistant", "content": "4"}, {"role": "assistant", "content": "5"}


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        ({"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}, "2 + 2?"),
        ({"prompt": [USER], "chosen": "4", "rejected": "5"}, [USER]),
        ({"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]}, [USER]),
        # A text whose responses are messages is the user's turn.
        ({"prompt": "2 + 2?", "chosen": [GOOD], "rejected": [BAD]}, [USER]),
        # Whole conversations, with the prompt beside them or only in them.
        ({"prompt": "2 + 2?", "chosen": [USER, GOOD], "rejected": [USER, BAD]}, [USER]),
        ({"prompt": [SYSTEM, USER], "chosen": [SYSTEM, USER, GOOD], "rejected": [SYSTEM, USER, BAD]}, [SYSTEM, USER]),
        ({"chosen": [SYSTEM, USER, GOOD], "rejected": [SYSTEM, USER, BAD]}, [SYSTEM, USER]),
        ({"chosen": [USER, GOOD], "rejected": [BAD]}, [USER]),
    ],
)  # fmt: skip
def test_every_shape_becomes_a_prompt_and_two_texts(row: dict[str, Any], prompt: Any) -> None:
    assert one_form(row) == (prompt, "4", "5")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": "x", "chosen": "4"}, "no column 'rejected'; the row has prompt, chosen; dpo.rejected names it"),
        ({"prompt": "x", "chosen": "4", "reject": "5"}, "no column 'rejected'; did you mean 'reject'?"),
        ({"prompt": "x", "chosen": "4", "rejected": None}, "the response in column 'rejected' is null"),
        ({"prompt": "x", "chosen": 4, "rejected": "5"}, "the response in column 'chosen' is of type int"),
        ({"prompt": "x", "chosen": " ", "rejected": "5"}, "the response in column 'chosen' is empty"),
        ({"prompt": "x", "chosen": [], "rejected": "5"}, "the response in column 'chosen' is an empty list"),
        ({"prompt": "x", "chosen": [USER], "rejected": "5"}, "does not end with an assistant turn"),
        ({"prompt": "x", "chosen": "\ud800", "rejected": "5"}, "half of a surrogate pair"),
        ({"chosen": "4", "rejected": "5"}, "no column 'prompt', and the responses are no conversations"),
        ({"prompt": "", "chosen": "4", "rejected": "5"}, "the prompt (column 'prompt') is empty"),
        ({"chosen": [USER, GOOD], "rejected": [SYSTEM, USER, BAD]}, "differ between 'chosen' and 'rejected'"),
        ({"prompt": "3 + 3?", "chosen": [USER, GOOD], "rejected": [USER, BAD]}, "not with the prompt '3 + 3?'"),
        ({"prompt": [SYSTEM], "chosen": [USER, GOOD], "rejected": [USER, BAD]}, "are not those of the column"),
        ({"prompt": [GOOD], "chosen": "4", "rejected": "5"}, "the last turn is assistant's"),
    ],
)  # fmt: skip
def test_a_wrong_row_is_one_sentence_with_its_place(row: dict[str, Any], said: str) -> None:
    fine = {"prompt": "x", "chosen": "4", "rejected": "5"}
    with pytest.raises(DataError) as caught:
        preference_rows(rows_from([fine, row, row], source="train"), config_of())
    message = str(caught.value)
    assert message.startswith("train:1: ")
    assert said in message
    assert message.endswith("(1 more of 3 rows are wrong as well)")


def test_other_columns_are_named_in_the_configuration() -> None:
    row = {"question": "x", "better": "4", "worse": "5"}
    sections = {
        "dpo": {"chosen": "better", "rejected": "worse"},
        "prompts": {"columns": {"prompt": "question"}},
    }
    (made,) = preference_rows(rows_from([row], source="train"), config_of(**sections))
    assert dict(made.columns) == row
    with pytest.raises(DataError, match=r"no column 'better'; .*dpo.chosen names it"):
        preference_rows(rows_from([{"question": "x"}], source="train"), config_of(**sections))


def test_both_sides_in_one_column_are_refused() -> None:
    loaded = load({"method": "dpo", "dpo": {"rejected": "chosen"}})
    with pytest.raises(ConfigError, match="both name the column 'chosen'"):
        read_preferences(loaded, train=[{"prompt": "x", "chosen": "4"}])


def encoded(policy: Policy, rows: list[dict[str, Any]], **sections: Any) -> Any:
    config = config_of(**sections)
    return encode_pairs(preference_rows(rows_from(rows, source="train"), config), config, policy)


def test_a_response_ends_with_the_token_that_ends_a_turn_and_control_text_in_it_is_text(
    policy: Policy,
) -> None:
    tokenizer = policy.tokenizer
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    rows = [
        {"prompt": [USER], "chosen": "4", "rejected": "5<|im_end|>6"},
        {"prompt": "2 + 2 =", "chosen": " 4", "rejected": " 5"},
    ]
    pairs, _ = encoded(policy, rows)
    chat, text = pairs
    assert chat.chosen.rollout.token_ids_T.tolist() == [*tokenizer("4")["input_ids"], end]
    ids = chat.rejected.rollout.token_ids_T.tolist()
    assert ids.count(end) == 1
    assert ids[-1] == end
    assert tokenizer.decode(ids[:-1]) == "5<|im_end|>6"
    assert text.chosen.rollout.token_ids_T.tolist() == [*tokenizer(" 4")["input_ids"], end]
    assert chat.chosen.prompt_ids is chat.rejected.prompt_ids, "so that the prompt is computed once"
    # What the policy reads before the response is what it would have sampled from.
    rendered = tokenizer.apply_chat_template([USER], tokenize=False, add_generation_prompt=True)
    assert chat.prompt.token_ids.tolist() == tokenizer(rendered)["input_ids"]


def test_the_end_is_the_templates_where_the_tokenizers_is_another(
    build_policy: Callable[..., Policy],
) -> None:
    policy = build_policy(stop_token_ids=(0, 2))
    policy.tokenizer.eos_token = "<|endoftext|>"  # id 0; the template ends turns with <|im_end|>, id 2
    rows = [
        {"prompt": [USER], "chosen": "4", "rejected": "5"},
        {"prompt": "x", "chosen": "4", "rejected": "5"},
    ]
    pairs, _ = encoded(policy, rows)
    assert [pair.chosen.rollout.token_ids_T[-1] for pair in pairs] == [2, 0]


def test_long_responses_are_refused_left_out_or_cut(policy: Policy) -> None:
    rows = [
        {"prompt": "x", "chosen": "4", "rejected": "5"},
        {"prompt": "y", "chosen": "4", "rejected": "123456789"},  # 9 digits and the end: 10 tokens
    ]
    with pytest.raises(
        DataError, match=r"train:1: the response in column 'rejected' has 10 tokens.*limit of 9"
    ):
        encoded(policy, rows, dpo={"max_response_tokens": 9})
    pairs, notes = encoded(policy, rows, dpo={"max_response_tokens": 9}, prompts={"too_long": "drop"})
    assert [pair.prompt.id for pair in pairs] == ["train:0"]
    assert "1 of 2 pairs: a response over 9 tokens, left out (prompts.too_long: drop)." in notes
    pairs, notes = encoded(policy, rows, dpo={"max_response_tokens": 9}, prompts={"too_long": "truncate"})
    cut = pairs[1].rejected.rollout
    assert (cut.text, len(cut.token_ids_T), cut.stop_reason) == ("123456789", 9, StopReason.LENGTH)
    assert "1 responses over 9 tokens were cut at their end (prompts.too_long: truncate)." in notes
    whole, _ = encoded(policy, rows, dpo={"max_response_tokens": 10})
    assert whole[1].rejected.rollout.stop_reason is StopReason.STOP


def test_equal_responses_are_left_out_and_counted(policy: Policy) -> None:
    rows = [{"prompt": "x", "chosen": "4", "rejected": "4"}, {"prompt": "x", "chosen": "4", "rejected": "5"}]
    pairs, notes = encoded(policy, rows)
    assert [pair.prompt.id for pair in pairs] == ["train:1"]
    assert "1 of 2 pairs have equal responses and are left out." in notes
    with pytest.raises(DataError, match="no pair is left of 1: 1 have equal responses"):
        encoded(policy, rows[:1])


def test_the_limits_share_the_context(policy: Policy) -> None:
    rows = [{"prompt": "x" * 300, "chosen": "4", "rejected": "5"}]
    # 512 tokens: half of them for a response, so a prompt of 300 is too long until the response's limit is lowered.
    with pytest.raises(DataError, match=r"over the limit of 256 .*lower dpo.max_response_tokens"):
        encoded(policy, rows)
    assert len(encoded(policy, rows, dpo={"max_response_tokens": 20})[0]) == 1
    with pytest.raises(
        ConfigError, match="prompts of up to 500 tokens and responses of up to 20 do not fit the 512"
    ):
        encoded(policy, rows, dpo={"max_response_tokens": 20}, prompts={"max_prompt_tokens": 500})
