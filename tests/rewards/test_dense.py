"""Rewards along a response: what is taken for one, and which token earns what."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from groupwise.config.rewards import RewardConfig
from groupwise.errors import RewardError
from groupwise.model.tiny import tiny_tokenizer
from groupwise.records import Rollout, StopReason
from groupwise.rewards import build
from groupwise.rewards.dense import Dense, as_dense, tokens_at
from tests.rewards.examples import HERE, one, pairs

TOKENIZER = tiny_tokenizer()
STOP = TOKENIZER.eos_token_id


def decode(ids: list[int]) -> str:
    return TOKENIZER.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def rollout_of(ids: list[int], *, stopped: bool = False, text: str | None = None) -> Rollout:
    whole = [*ids, STOP] if stopped else ids
    stop = [StopReason.STOP if stopped else StopReason.LENGTH]
    return pairs([decode(ids) if text is None else text], ids=[whole], stop=stop)[1][0]


def byte_ends(ids: list[int]) -> list[int]:
    """How many bytes the first 1, 2, ... tokens spell, from the byte-level pieces themselves."""
    ends, total = [], 0
    for piece in TOKENIZER.convert_ids_to_tokens(ids):
        total += len(piece)  # each character of a byte-level piece stands for one byte
        ends.append(total)
    return ends


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab the 9é½🦊👩‍👧中\n", max_size=20), st.randoms(use_true_random=False))
def test_a_character_belongs_to_the_token_that_brings_its_last_byte(text: str, rng: random.Random) -> None:
    ids = TOKENIZER.encode(text)
    # Spelled as a model may: some pieces byte by byte, so that a character is spread over up to four tokens.
    spelled: list[int] = []
    for piece, token in zip(TOKENIZER.convert_ids_to_tokens(ids), ids, strict=True):
        spelled += TOKENIZER.convert_tokens_to_ids(list(piece)) if rng.random() < 0.5 else [token]
    assert decode(spelled) == text
    ends = byte_ends(spelled)
    expected = [
        next(t for t, end in enumerate(ends) if end >= len(text[:e].encode()))
        for e in range(1, len(text) + 1)
    ]
    for stopped in (False, True):
        found = tokens_at(range(1, len(text) + 1), rollout_of(spelled, stopped=stopped), decode, "r")
        assert found == expected


def test_pieces_of_an_emoji_and_a_word_across_spans() -> None:
    # "The" is one token of the tiny vocabulary, the fox four bytes of which each is a token.
    ids = TOKENIZER.encode("The🦊a")
    assert len(ids) == 6
    rollout = rollout_of(ids, stopped=True)
    # "T" and "Th" end inside the word, so they belong to it; the fox is complete with its fourth byte.
    assert tokens_at([1, 2, 3, 4, 5], rollout, decode, "r") == [0, 0, 0, 4, 5]


def test_broken_bytes_are_complete_when_the_next_character_begins() -> None:
    # The first two bytes of a fox are one replacement character: it is whole with the second.
    fox = TOKENIZER.encode("🦊")
    ids = [*fox[:2], *TOKENIZER.encode("a")]
    rollout = rollout_of(ids)
    assert rollout.text == "\ufffda"
    assert tokens_at([1, 2], rollout, decode, "r") == [1, 2]
    assert tokens_at([1], rollout_of(fox[:3]), decode, "r") == [2]


def test_a_tokenizer_that_drops_the_first_space() -> None:
    # SentencePiece writes a space into the piece that follows it, and its decoder drops that of the first.
    pieces = ["<unk>", "▁the", "▁", "fo", "x", "▁f"]
    tokenizer = Tokenizer(
        models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=[], unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    ids = [1, 5, 2, 3, 4]

    def plain(part: list[int]) -> str:
        return tokenizer.decode(part)

    text = plain(ids)
    assert text == "the f fox"
    rollout = rollout_of(ids, text=text)
    found = tokens_at(range(1, len(text) + 1), rollout, plain, "r")
    expected = [
        next(k for k in range(1, 6) if plain(ids[:k]).startswith(text[:end])) - 1
        for end in range(1, len(text) + 1)
    ]
    assert found == expected == [0, 0, 0, 1, 1, 2, 3, 3, 4]


def test_values_per_token_and_per_span_reach_the_verdict() -> None:
    ids = TOKENIZER.encode("The🦊a")

    def reward(completions: list[str]) -> list[Any]:
        return [[0.5, None, 0, 0, 1.0, 0.25, None], [(0, 3, 1.0), (3, 4, -0.5), (1, 4, 2.0)], 3.0]

    rewards = one(reward)
    rewards.decode = decode
    verdicts = rewards.score(*pairs(["The🦊a"] * 3, ids=[[*ids, STOP]] * 3))
    assert [v.reward for v in verdicts] == [1.75, 2.5, 3.0]
    assert verdicts[0].parts == {"reward": 1.75}
    assert verdicts[0].token_rewards == (0.5, None, 0.0, 0.0, 1.0, 0.25, None)
    # The first span ends with token 0; the others both with the fox's last byte, token 4.
    assert verdicts[1].token_rewards == (1.0, None, None, None, 1.5, None, None)
    assert verdicts[2].token_rewards is None


def test_weights_scale_and_single_numbers_come_last() -> None:
    def steps(completions: list[str]) -> list[Any]:
        return [[1.0, 2.0, None]]

    def whole(completions: list[str]) -> list[float]:
        return [10.0]

    rewards = build([], base=HERE, functions=[(steps, 0.5), (whole, 2.0)])
    [verdict] = rewards.score(*pairs(["abc"], ids=[[5, 6, STOP]]))
    assert verdict.reward == 21.5  # 0.5 x 3 + 2 x 10
    assert verdict.token_rewards == (0.5, 1.0, 20.0)
    assert verdict.terms == {"steps": 1.5, "whole": 20.0}


@pytest.mark.parametrize(
    "given_values",
    [
        np.array([1.0, 2.0, 3.0], dtype=np.float32),
        torch.tensor([1.0, 2.0, 3.0]),
        (1, 2, 3),
        [np.float64(1.0), torch.tensor(2.0), True + 2],
    ],
)
def test_arrays_of_every_kind_are_taken(given_values: Any) -> None:
    [verdict] = one(lambda completions: [given_values]).score(*pairs(["abc"], ids=[[5, 6, 7]]))
    assert verdict.token_rewards == (1.0, 2.0, 3.0)


def test_without_rollouts_the_sum_is_all_there_is() -> None:
    from groupwise.rewards.batch import Batch

    batch = Batch(prompts=["p"], completions=["abc"], completion_ids=None, stop_reasons=None, columns={})
    [verdict] = one(lambda completions: [[(0, 2, 1.5), (2, 3, 1.0)]]).score_batch(batch)
    assert (verdict.reward, verdict.token_rewards) == (2.5, None)


@pytest.mark.parametrize(
    ("given_values", "why"),
    [
        ([1.0, 2.0], "it gave 2 values for the 3 tokens of its completion_ids"),
        ([1.0, float("nan"), 1.0], "it gave nan among the values of its tokens"),
        ([1.0, "x", 1.0], "it gave 'x' among the values of its tokens"),
        ([1.0, (0, 1, 1.0), 1.0], r"it gave \(0, 1, 1.0\) among the values of its tokens"),
        ([(0, 1)], r"it gave the span \(0, 1\); a span is \(start, end, value\)"),
        ([(0.0, 1, 1.0)], r"it gave the span \(0.0, 1, 1.0\)"),
        ([(0, 1, float("inf"))], r"it gave the span"),
        ([(0, 4, 1.0)], "it gave a span from 0 to 4 of a completion of 3 characters"),
        ([(2, 2, 1.0)], "it gave a span from 2 to 2"),
        ([(-1, 2, 1.0)], "it gave a span from -1 to 2"),
        ([], "it gave 0 values for the 3 tokens"),
    ],
)
def test_what_is_no_reward_along_a_response_is_a_failure_with_its_reason(given_values: Any, why: str) -> None:
    with pytest.raises(RewardError, match=why):
        one(lambda completions: [given_values]).score(*pairs(["abc"], ids=[[5, 6, 7]]))
    rewards = one(
        lambda completions: [1.0 if c == "x" else given_values for c in completions],
        on_failure="value",
        failure_value=-1.0,
    )
    verdict = rewards.score(*pairs(["x", "abc"], ids=[[5], [5, 6, 7]]))[1]
    assert (verdict.reward, verdict.token_rewards) == (-1.0, None)


def test_spans_need_a_tokenizer_and_values_no_normalisation() -> None:
    with pytest.raises(RewardError, match="there is no tokenizer here to map them to tokens"):
        one(lambda completions: [[(0, 1, 1.0)]]).score(*pairs(["abc"], ids=[[5, 6, 7]]))
    rewards = one(lambda completions: [[1.0, 2.0, 3.0]], normalise="group")
    with pytest.raises(RewardError, match="gives values along the response and is normalised over the group"):
        rewards.score(*pairs(["abc"], ids=[[5, 6, 7]]), training=True)


def test_a_closed_gate_replaces_the_values_by_one() -> None:
    def steps(completions: list[str]) -> list[Any]:
        return [[1.0, 2.0, 3.0]]

    import tests.rewards.test_dense as module

    module.steps, module.no = steps, lambda completions: [0.0]
    configs = [
        RewardConfig.model_validate(
            {"name": "tests.rewards.test_dense:steps", "label": "s", "gate": {"reward": "n", "at_least": 1}}
        ),
        RewardConfig.model_validate({"name": "tests.rewards.test_dense:no", "label": "n"}),
    ]
    [verdict] = build(configs, base=HERE.parents[1]).score(*pairs(["abc"], ids=[[5, 6, 7]]))
    assert (verdict.reward, verdict.token_rewards) == (0.0, None)


steps: Any = None
no: Any = None


def test_as_dense_sums_exactly() -> None:
    found = as_dense([0.1] * 10, tokens=10, characters=0)
    assert isinstance(found, Dense)
    assert found.total == 1.0
