"""BLEU and ROUGE are those of sacrebleu and rouge-score; perplexity that of a plain forward pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from rouge_score.rouge_scorer import RougeScorer

from groupwise.errors import DataError
from groupwise.evaluate.text_metrics import distinct, diversity, overlap, perplexity, self_bleu
from groupwise.model.load import Policy
from groupwise.model.logprobs import TokenLogprobs
from tests.evaluate.examples import group_of

SAID = [
    ["the cat sat on the mat", "a cat is on the mat today"],
    ["there is a dog in the garden", "no dog is here, and no cat either"],
    ["It rains; it pours.", ""],
]
WANTED = [
    "the cat is on the mat",
    ["a dog is in the garden", "there was a dog in our garden"],
    "It rains, it pours, the old man snores.",
]


def groups() -> list[Any]:
    return [
        group_of(said, name=f"made:{i}", columns={"reference": wanted})
        for i, (said, wanted) in enumerate(zip(SAID, WANTED, strict=True))
    ]


def test_bleu_is_that_of_the_library() -> None:
    flat = [text for said in SAID for text in said]
    lists = [[w] if isinstance(w, str) else w for w in WANTED for _ in range(2)]
    first, second = [w[0] for w in lists], [w[1] if len(w) > 1 else None for w in lists]
    expected = sacrebleu.corpus_bleu(flat, [first, second]).score / 100
    assert 0.1 < expected < 0.9
    assert overlap(groups(), "reference")["bleu"] == pytest.approx(expected, abs=1e-12)


def test_rouge_is_that_of_the_library() -> None:
    library = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)
    found = overlap(groups(), "reference")
    for ours, theirs in (("rouge_1", "rouge1"), ("rouge_2", "rouge2"), ("rouge_l", "rougeL")):
        scores = [
            max(
                library.score(w, text)[theirs].fmeasure
                for w in ([wanted] if isinstance(wanted, str) else wanted)
            )
            for said, wanted in zip(SAID, WANTED, strict=True)
            for text in said
        ]
        assert found[ours] == pytest.approx(sum(scores) / len(scores), abs=1e-12)


def test_rouge_of_other_scripts_counts_their_words() -> None:
    # 2 of 3 letters are common, in order: each is a word. rouge-score knows no word of it, and would say 0.
    found = overlap([group_of(["東京市"], name="made:1", columns={"reference": "東京都"})], "reference")
    assert found["rouge_l"] == pytest.approx(2 / 3, abs=1e-12)
    # A reference without any word changes nothing for the others: rouge-score takes "caf" for all of "café".
    rows = [group_of(["caf"], name="made:1", columns={"reference": "café"})]
    rows.append(group_of(["caf"], name="made:2", columns={"reference": "..."}))
    assert overlap(rows, "reference")["rouge_l"] == pytest.approx(1 / 2, abs=1e-12)


def test_distinct_by_hand() -> None:
    # "a b a" and "a b": 2 of 5 words differ; pairs ab, ba, ab: 2 of 3.
    words = [["a", "b", "a"], ["a", "b"]]
    assert distinct(words, 1) == 2 / 5
    assert distinct(words, 2) == 2 / 3
    assert math.isnan(distinct([["a"]], 2))


def test_self_bleu_is_each_against_the_others() -> None:
    texts = ["the cat sat on the mat", "the cat sat on a mat", "dogs bark at night over there"]
    expected = [
        sacrebleu.sentence_bleu(text, texts[:i] + texts[i + 1 :]).score / 100 for i, text in enumerate(texts)
    ]
    assert self_bleu(texts) == pytest.approx(expected)
    assert self_bleu(["same words here again"] * 3) == pytest.approx([1.0] * 3)
    assert self_bleu(["alone"]) == []
    assert len(self_bleu([f"text number {i} of many" for i in range(40)])) == 40
    found = diversity(groups())
    assert set(found) == {"distinct_1", "distinct_2", "self_bleu"}
    assert set(diversity([group_of(["one"])])) == {"distinct_1", "distinct_2"}


def test_perplexity_is_that_of_a_plain_forward_pass(build_policy: Callable[..., Policy]) -> None:
    model: Any = build_policy(3).model
    responses = [[9, 10, 11, 2], [12], [13, 14, 2]]
    given = [
        group_of(["x", "y"], ids=responses[:2], name="made:0"),
        group_of(["z"], ids=responses[2:], name="made:1"),
    ]
    negative, count = 0.0, 0
    for response in responses:
        ids = torch.tensor([[3, 4, 5, *response]])
        with torch.no_grad():
            logprobs = model(ids).logits.double().log_softmax(-1)
        for t, token in enumerate(response):
            negative -= float(logprobs[0, 2 + t, token])
            count += 1
    expected = math.exp(negative / count)
    scorer = TokenLogprobs(model, longest_tokens=16)
    for limit in (1, 10_000):
        assert perplexity(given, scorer, limit_tokens=limit) == pytest.approx(expected, rel=1e-5)
    assert math.isnan(perplexity([group_of([""], ids=[np.array([], dtype=int)])], scorer, limit_tokens=9))


def test_what_is_refused() -> None:
    with pytest.raises(DataError, match=r"made:0: no column 'gold' to compare with; the row has reference"):
        overlap(groups(), "gold")
    with pytest.raises(DataError, match=r"made:0: the n column holds 5, not text"):
        overlap([group_of(["x"], columns={"n": 5})], "n")
    with pytest.raises(DataError, match="no row has text in the column 'n'"):
        overlap([group_of(["x"], columns={"n": None})], "n")
