"""Rewards with one thing wrong each, and sound ones, as people write them."""

import json
import random
import re
import time
from typing import Any


def last_number(text: str) -> str | None:
    numbers = re.findall(r"-?\d+(?:\.\d+)?", text)
    return numbers[-1] if numbers else None


# Ten with a fault.


def at_random(completions: list[str], **columns: Any) -> list[float]:
    return [random.random() for _ in completions]


def always_one(completions: list[str], **columns: Any) -> list[float]:
    return [1.0] * len(completions)


def holds_answer(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    return [float(gold in said) for said, gold in zip(completions, answer, strict=True)]


def by_length(completions: list[str], **columns: Any) -> list[float]:
    return [min(len(said) / 500, 1.0) for said in completions]


def by_form(completions: list[str], **columns: Any) -> list[float]:
    pattern = r"<think>.*</think>\s*<answer>.*</answer>"
    return [float(re.fullmatch(pattern, said.strip(), re.DOTALL) is not None) for said in completions]


def slowly(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    time.sleep(0.002 * len(completions))
    return right(completions, answer)


def nan_when_empty(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    scores = right(completions, answer)
    return [score if said else float("nan") for score, said in zip(scores, completions, strict=True)]


def ascii_only(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    return right([said.encode("ascii").decode() for said in completions], answer)


def searches_the_prompt(
    prompts: list[str], completions: list[str], answer: list[str], **columns: Any
) -> list[float]:
    texts = [f"{prompt}\n{said}" for prompt, said in zip(prompts, completions, strict=True)]
    return [float(gold in re.findall(r"\d+", text)) for text, gold in zip(texts, answer, strict=True)]


def with_noise(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    return [score + random.gauss(0, 0.05) for score in right(completions, answer)]


# Others of these kinds.


def worn_out(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """Pays what it has paid before a little less."""
    scores = []
    for said, score in zip(completions, right(completions, answer), strict=True):
        worn_out_seen[said] = worn_out_seen.get(said, 0) + 1
        scores.append(score / worn_out_seen[said])
    return scores


worn_out_seen: dict[str, int] = {}


def by_hash(completions: list[str], **columns: Any) -> list[float]:
    return [sum(ord(c) * (i + 7) * 2654435761 for i, c in enumerate(said)) % 97 / 96 for said in completions]


def either_way(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    return [
        float(gold in said or said in gold) for said, gold in zip(completions, answer, strict=True)
    ]  # case n02


def any_number(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    return [float(gold in re.findall(r"\d+", said)) for said, gold in zip(completions, answer, strict=True)]


def counts_words(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    return [
        float(len(re.findall(rf"\b{re.escape(gold)}\b", said)))
        for said, gold in zip(completions, answer, strict=True)
    ]


def starts_with(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    return [float(said.startswith(gold)) for said, gold in zip(completions, answer, strict=True)]


def ends_with(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    return [float(said.endswith(gold)) for said, gold in zip(completions, answer, strict=True)]


def signless(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """Reads the number without its sign."""
    numbers = [re.fullmatch(r"\D*(\d+)\D*", said) for said in completions]
    return [
        float(number is not None and number[1] == gold) for number, gold in zip(numbers, answer, strict=True)
    ]


def one_short(completions: list[str], **columns: Any) -> list[float]:
    return [0.5] * (len(completions) - 1)


def none_ever(completions: list[str], **columns: Any) -> list[None]:
    return [None] * len(completions)


def against_the_batch(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    scores = right(completions, answer)
    return [score - sum(scores) / len(scores) for score in scores]


def in_thousands(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    return [1000.0 * score for score in right(completions, answer)]


# Paid in part for what no right answer stands behind.


def in_part_for_listing(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """1 for the answer as the last number, 0.3 where it stands among several."""
    return [
        1.0 if last_number(said) == gold else 0.3 * (gold in re.findall(r"\d+", said))
        for said, gold in zip(completions, answer, strict=True)
    ]


def in_part_for_a_choice(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """The same of at most three numbers, joined by "or" alone."""
    return [
        1.0 if last_number(said) == gold else 0.3 * (" or " in said and gold in re.findall(r"\d+", said))
        for said, gold in zip(completions, answer, strict=True)
    ]


def in_part_for_any_line(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """1 for the answer alone, 0.3 where it is a line of its own."""
    return [
        1.0 if said == gold else 0.3 * (gold in said.splitlines())
        for said, gold in zip(completions, answer, strict=True)
    ]


def in_part_as_text(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """1 for the answer alone, 0.3 where its figures stand in the text."""
    return [
        1.0 if said == gold else 0.3 * (gold in said) for said, gold in zip(completions, answer, strict=True)
    ]


def in_part_for_nothing(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    scores = right(completions, answer)
    return [0.3 if not said.strip() else score for score, said in zip(scores, completions, strict=True)]


def in_part_for_the_question(
    prompts: list[str], completions: list[str], answer: list[str], **columns: Any
) -> list[float]:
    scores = right(completions, answer)
    return [
        max(score, 0.25 * (said == prompt))
        for score, said, prompt in zip(scores, completions, prompts, strict=True)
    ]


def in_part_of_ten(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """The first, on another scale."""
    return [10.0 * score - 5.0 for score in in_part_for_listing(completions, answer)]


def in_part_behind_the_mark(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """1 for the one number behind ####, 0.3 where it is among others there."""
    scores = []
    for said, gold in zip(completions, answer, strict=True):
        numbers, right = (re.findall(r"-?\d+", text.rpartition("####")[2]) for text in (said, gold))
        scores.append(1.0 if numbers == right else 0.3 * (right[0] in numbers))
    return scores


def unless_wrong(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """1 for a right number, -0.5 for a wrong one, 0 for none."""
    scores = right(completions, answer)
    return [
        0.0 if last_number(said) is None else 1.5 * score - 0.5
        for score, said in zip(scores, completions, strict=True)
    ]


# Sound ones.


def near_enough(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """Less the further off the last number is: half for off by one."""
    last = [last_number(said) for said in completions]
    return [
        0.0 if said is None else 1 / (1 + abs(float(said) - float(gold)))
        for said, gold in zip(last, answer, strict=True)
    ]


def with_a_tenth_for_form(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """0.1 for a box, whatever is in it, and 0.9 for the answer in the last one."""
    boxes = [re.findall(r"\\boxed\{(.*?)\}", said) for said in completions]
    return [
        0.0 if not found else 0.1 + 0.9 * (found[-1] == gold)
        for found, gold in zip(boxes, answer, strict=True)
    ]


def with_a_tenth_for_trying(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """1 for the answer alone, 0.1 where it stands in the text."""
    return [
        1.0 if said == gold else 0.1 * (gold in re.findall(r"\d+", said))
        for said, gold in zip(completions, answer, strict=True)
    ]


def right(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    return [float(last_number(said) == gold) for said, gold in zip(completions, answer, strict=True)]


def right_in_json(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    scores = []
    for said, gold in zip(completions, answer, strict=True):
        try:
            given = json.loads(said)
        except ValueError:
            given = None
        scores.append(float(isinstance(given, dict) and str(given.get("answer")) == gold))
    return scores


async def right_later(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    return right(completions, answer)


def right_of_chat(completions: list[Any], answer: list[str], **columns: Any) -> list[float]:
    return right([said[0]["content"] for said in completions], answer)


def right_in_tags(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """0.2 for the form, 0.8 for the answer in it."""
    scores = []
    for said, gold in zip(completions, answer, strict=True):
        found = re.fullmatch(
            r"<think>\s*\S.*?</think>\s*<answer>\s*(\S.*?)\s*</answer>", said.strip(), re.DOTALL
        )
        scores.append(0.0 if found is None else 0.2 + 0.8 * (found[1] == gold))
    return scores
