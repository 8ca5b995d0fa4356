"""What a task of reasoning-gym itself says of an answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from groupwise.rewards.completions import text_of
from groupwise.rewards.libraries import library

FORMULA = "the task's own score of the answer"

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def reasoning_gym(
    completions: Sequence[Any],
    answer: Sequence[Any],
    task: Sequence[str | None],
    metadata: Sequence[Any],
    *,
    whole: bool = False,
) -> list[float | None]:
    """The task's own score, from 0 to 1; some tasks pay a little for a wrong answer of the right form.

    The columns are those that a source `reasoning-gym:TASK` makes (Stojanovski et al. 2025, arXiv 2505.24760). The
    answer is what the last `<answer>...</answer>` holds, white space around it taken off.

    Edge cases: without such a pair the score is 0, unless `whole` is set. A row without a task gives None, so that
    other data can be mixed in.

    Args:
        completions: text or messages, [N].
        answer: the right answer, [N].
        task: name of the task, [N].
        metadata: what the task knows of the question, [N].
        whole: a completion without the pair is the answer as a whole.

    Raises:
        ConfigError: reasoning-gym is not installed.
    """
    gym: Any = library(
        "reasoning_gym", package="reasoning-gym", extra="reasoning-gym", scorer="reasoning_gym"
    )
    scores: list[float | None] = []
    for completion, gold, name, known in zip(completions, answer, task, metadata, strict=True):
        if name is None:
            scores.append(None)
            continue
        text = text_of(completion)
        said = _ANSWER.findall(text)
        if not said and not whole:
            scores.append(0.0)
            continue
        entry = {"answer": gold, "metadata": known}
        given = (said[-1] if said else text).strip()
        scores.append(float(gym.get_score_answer_fn(name)(answer=given, entry=entry)))
    return scores
