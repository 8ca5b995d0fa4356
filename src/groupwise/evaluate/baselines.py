"""What answers get that are given without reading the question: the least that a model has to beat."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.evaluate.intervals import Estimate, share_interval
from groupwise.evaluate.run import passes
from groupwise.records import Prompt
from groupwise.rewards import Rewards
from groupwise.rewards.batch import Batch
from groupwise.rewards.mathematics.finding import gold_answer
from groupwise.rewards.mathematics.nodes import UnreadableError
from groupwise.rewards.numbers import plain

LONGEST_ANSWER = 100
"""Characters; a longer column holds a text, of which no two rows are alike."""

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A rule that answers without thought, and the share of prompts where that passes."""

    name: str
    """What it answers."""
    passes: Estimate
    """Share of the prompts where its answer passes."""


def baselines(prompts: Sequence[Prompt], rewards: Rewards, *, pass_reward: float) -> list[Baseline]:
    """Score the same blind answers on every prompt, by the rewards that a model is measured by.

    The answers: nothing at all; the commonest answer of the data, which is what a model finds that learns the answers
    and not the questions; the last and the largest number of the prompt; and the prompt itself. On questions with few
    different answers, such as yes or no, the commonest one alone may pass half of the time.

    Args:
        prompts: what a model is measured on.
        rewards: by which.
        pass_reward: the total reward from which on an answer passes.

    Returns:
        The rules, the best one first.

    Raises:
        RewardError: a reward failed.
    """
    said: dict[str, list[str]] = {"an empty answer": ["" for _ in prompts]}
    common = _commonest(prompts, rewards)
    if common is not None:
        said[f"always {common!r}"] = [f"The answer is {common}" for _ in prompts]
    numbers = [_numbers(prompt.text) for prompt in prompts]
    if any(numbers):
        said["the last number of the prompt"] = [each[-1] if each else "" for each in numbers]
        said["the largest number of the prompt"] = [
            max(each, key=lambda text: float(text.replace(",", ""))) if each else "" for each in numbers
        ]
    said["the prompt itself"] = [prompt.text for prompt in prompts]
    found = [
        Baseline(name=name, passes=share_interval(_passed(prompts, texts, rewards, pass_reward)))
        for name, texts in said.items()
    ]
    rewards.take_metrics()  # of answers that no model gave
    return sorted(found, key=lambda each: -each.passes.value)


def _commonest(prompts: Sequence[Prompt], rewards: Rewards) -> str | None:
    """The most frequent short value of the columns that the rewards read; None where every row has its own."""
    columns = dict.fromkeys(column for needed in rewards.needs.values() for column in needed)
    counts: Counter[str] = Counter()
    for column in columns:
        for prompt in prompts:
            value = prompt.columns.get(column)
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                continue
            try:
                answer = gold_answer(str(value)).strip()
            except UnreadableError:
                continue
            if len(answer) <= LONGEST_ANSWER:
                counts[answer] += 1
    if not counts:
        return None
    answer, count = counts.most_common(1)[0]
    return answer if count > 1 else None


def _numbers(text: str) -> list[str]:
    return _NUMBER.findall(plain(text))


def _passed(
    prompts: Sequence[Prompt], texts: Sequence[str], rewards: Rewards, pass_reward: float
) -> list[float]:
    names = dict.fromkeys(name for prompt in prompts for name in prompt.columns)
    verdicts = rewards.score_batch(
        Batch(
            prompts=[p.text if p.messages is None else p.messages for p in prompts],
            completions=[
                text if p.messages is None else [{"role": "assistant", "content": text}]
                for p, text in zip(prompts, texts, strict=True)
            ],
            completion_ids=None,
            stop_reasons=None,
            columns={name: [p.columns.get(name) for p in prompts] for name in names},
            group_ids=[prompt.id for prompt in prompts],
            places=[prompt.id for prompt in prompts],
        )
    )
    return [float(passes(verdict, pass_reward)) for verdict in verdicts]
