"""Rewards that models have learned to cheat elsewhere, asked the way a run asks ours (cases n02 and n04)."""

from pathlib import Path
from typing import Any

import pytest

from groupwise.config.rewards import RewardConfig
from groupwise.rewards import build
from groupwise.rewards.score_file import score_rows

SHOWN = r"Think first. Put your answer into \boxed{} or <answer></answer>."
TEXT = f"{SHOWN} What is 2 + 2?"
CHAT = [{"role": "system", "content": SHOWN}, {"role": "user", "content": "What is 2 + 2?"}]


def scores(
    name: str, completions: list[str], *, prompt: Any = TEXT, answer: Any = "4", **settings: Any
) -> list[Any]:
    rewards = build([RewardConfig(name=name, settings=settings)], base=Path())
    rows = [
        {"prompt": prompt, "completion": said, "answer": answer, "keywords": answer} for said in completions
    ]
    return [verdict.reward for verdict in score_rows(rewards, rows)]


@pytest.mark.parametrize("name", ["contains", "exact"])
def test_the_empty_answer_a_piece_of_it_and_a_list_are_not_paid(name: str) -> None:
    said = ["", "b", "beagle or poodle or terrier or pug", "a beagles", "beagle, poodle, pug", " \n"]
    assert scores(name, said, answer="beagle") == [0.0] * 6
    assert scores(name, ["beagle"], answer="beagle") == [1.0]


def test_keywords_are_found_between_borders_and_within_a_length() -> None:
    said = ["", "b", "beagle or poodle or terrier or pug", "beagles", "the beagle"]
    assert scores("keywords", said, answer="beagle", max_words=4) == [0.0, 0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("name", ["language", "sentiment", "bleu", "rouge", "similarity", "length_target"])
def test_every_scorer_that_pays_for_text_pays_nothing_for_none(name: str) -> None:
    settings: dict[str, Any] = {
        "language": {"code": "en"},
        "length_target": {"unit": "words", "target": 1},
    }.get(name, {})
    rewards = build([RewardConfig(name=name, settings=settings)], base=Path())
    rows = [
        {"prompt": "p", "completion": said, "reference": "We are glad to help."} for said in ("", " \n\t")
    ]
    assert [verdict.reward for verdict in score_rows(rewards, rows)] == [0.0, 0.0]


@pytest.mark.parametrize("prompt", [TEXT, CHAT], ids=["text", "chat"])
def test_only_the_completion_is_searched(prompt: Any) -> None:
    assert scores("format", ["4", r"\boxed{4}"], prompt=prompt, pattern=r".*\\boxed\{.+\}.*") == [0.0, 1.0]
    assert scores("format", ["4", "<answer>4</answer>"], prompt=prompt, tags=["answer"]) == [0.0, 1.0]
    assert scores("contains", ["5", "4"], prompt=prompt) == [0.0, 1.0]
    assert scores("numeric", ["I do not know.", "4"], prompt=prompt) == [0.0, 1.0]


@pytest.mark.parametrize("prompt", [TEXT, CHAT], ids=["text", "chat"])
def test_exactly_one_block_of_each_kind_in_order(prompt: Any) -> None:
    think, answer = "<think>2 and 2</think>", "<answer>4</answer>"
    said = [
        f"{think}\n{answer}",
        f"{think}{think}{answer}",
        f"{think}{answer}{answer}",
        f"{think}{answer}{think}{answer}",
        f"{answer}{think}",
        f"<think></think>{answer}",  # documented: a blank block scores 0
        f"<think> \n</think>{answer}",
        f"{think}<answer></answer>",
        answer,
    ]
    assert scores("format", said, prompt=prompt, tags=["think", "answer"]) == [1.0, *[0.0] * 8]
