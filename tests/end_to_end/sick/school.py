"""Where the models of the zoo come from: tiny ones that have learned a task halfway, so that reinforcement can go on.

A model of random weights says nothing that a reward could tell apart, and never ends. These were taught by examples of
which most are wrong, so that they end, answer in a few ways, and are right in about two answers of five.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from groupwise.model.reading import quiet
from groupwise.model.tiny import Architecture, build_tiny

_LESSONS, _MOST_LESSONS, _SHARE = 150, 1500, 0.7
"""Taught in terms of so many lessons, until it is right at once at least 0.7 times as often as the examples are."""
_FILLERS = (" the", " answer", " is", " of", " and", " number")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Something to be asked."""

    name: str
    """For folders."""
    asks: tuple[str, ...]
    """Questions with `{}` for what they are about; the last two are kept for held-out prompts."""
    about: tuple[str, ...]
    """What they are about."""
    answer: Callable[[str], str]
    """The right answer, one character."""

    def rows(self, *, held_out: bool = False) -> list[dict[str, str]]:
        """Prompts with their answers."""
        asks = self.asks[-2:] if held_out else self.asks[:-2]
        return [{"prompt": ask.format(x), "answer": self.answer(x)} for ask in asks for x in self.about]

    def response(self, answer: str, draw: random.Random, right: float) -> str:
        """As the examples have it: now and then with words before the answer, and right with some probability."""
        said = answer if draw.random() < right else self.answer(draw.choice(self.about))
        words = draw.choices(_FILLERS, k=draw.randint(1, 3)) if draw.random() < 0.3 else []
        return "".join(words) + said


DIGITS = Task(
    name="digits",
    asks=("Give {}:", "Say {} to you:", "The number {} is", "Answer {}.", "What is {}?", "How, {}?"),
    about=tuple("0123456789"),
    answer=lambda digit: digit,
)
LETTERS = Task(
    name="letters",
    asks=("{} reply:", "hello {} and", "user {}:", "Give {} yes", "no {}?", "{} with you:"),
    about=tuple("ABCDEFGHIJKL"),
    answer=str.lower,
)


def right(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """1 where the response ends with the answer, with anything before it but another answer of the same kind."""
    return [float(text.strip().endswith(wanted)) for text, wanted in zip(completions, answer, strict=True)]


@torch.no_grad()
def _said_at_once(model: Any, tokenizer: Any, rows: list[dict[str, str]]) -> float:
    """The probability of answering right with the first token, over prompts."""
    model.eval()
    shares = []
    for row in rows:
        logits_V = model(input_ids=torch.tensor([tokenizer(row["prompt"]).input_ids])).logits[0, -1]
        shares.append(float(logits_V.softmax(0)[tokenizer(row["answer"]).input_ids[0]]))
    model.train()
    return sum(shares) / len(shares)


def _most_at_once(task: Task, right: float) -> float:
    """What that is of the examples themselves: seven of ten have no words before the answer."""
    return 0.7 * (right + (1 - right) / len(task.about))


@cache
def pupil(
    root: Path, task: Task, architecture: Architecture = "llama", *, seed: int = 0, right: float = 0.35
) -> Path:
    """A Hugging Face folder with a tiny model that has learned the task halfway; made once.

    Args:
        root: folder that it is written into.
        task: what it has learned.
        architecture: of the model.
        seed: of weights and examples.
        right: share of the examples that are right on purpose; others are at random.
    """
    model, tokenizer = build_tiny(seed, architecture=architecture)
    draw = random.Random(seed)
    rows = task.rows() + task.rows(held_out=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.train()
    for lesson in range(1, _MOST_LESSONS + 1):
        batch = [
            (
                tokenizer(row["prompt"]).input_ids,
                tokenizer(task.response(row["answer"], draw, right)).input_ids,
            )
            for row in draw.choices(rows, k=48)
        ]
        longest = max(len(asked) + len(said) + 1 for asked, said in batch)
        ids = torch.full((len(batch), longest), tokenizer.eos_token_id)
        labels = torch.full_like(ids, -100)
        for i, (asked, said) in enumerate(batch):
            whole = [*asked, *said, tokenizer.eos_token_id]
            ids[i, : len(whole)] = torch.tensor(whole)
            labels[i, len(asked) : len(whole)] = torch.tensor(whole[len(asked) :])
        optimizer.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        if lesson % _LESSONS == 0 and _said_at_once(model, tokenizer, rows) >= _SHARE * _most_at_once(
            task, right
        ):
            break
    folder = root / f"{task.name}-{architecture}-{seed}-{right}"
    with quiet():
        model.eval().save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder
