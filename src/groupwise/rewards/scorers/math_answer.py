"""The answer as mathematics."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from annotated_types import Gt, Le

from groupwise.rewards.completions import text_of
from groupwise.rewards.mathematics import judging, second_opinion, workers
from groupwise.rewards.mathematics.equality import Exact, UndecidedError
from groupwise.rewards.mathematics.nodes import UnreadableError

_log = logging.getLogger(__name__)


def math_answer(
    completions: Sequence[Any],
    answer: Sequence[Any],
    prompts: Sequence[Any] | None = None,
    log_metric: Callable[[str, float], None] | None = None,
    *,
    seconds: Annotated[float, Gt(0), Le(600)] = 2.0,
) -> list[float | None]:
    r"""1 when the answer that a completion states equals the right one as mathematics, 0 when not.

    The answer is the last of a `\boxed{}`, a `####` line and "the answer is", else the last formula or number; see
    `groupwise.rewards.mathematics.finding` for the order and docs/rewards/math_answer.md for what is equal to what:
    fractions, decimals, per cent, units, thousands marks, mixed numbers, intervals, sets, pairs, matrices, equations,
    inequalities, several answers, choices and short words. Rational numbers are compared exactly.

    Edge cases: a right answer that cannot be read gives None for all its rollouts, is logged once with the reason, and
    its share of a call is logged as the metric `math_answer_unreadable`. A completion without an answer, or with one
    that cannot be read, lists several, is taken back or takes longer than its limit, scores 0. Text is never
    evaluated as code; what is not a plain number is compared in a process of its own, which is killed at the limit.

    Args:
        completions: text or messages, [N].
        answer: the right answer, or a worked solution that ends in it, [N].
        prompts: the questions, so that an echo of one is not taken for an answer, [N]; None where they are not known.
        log_metric: takes a metric's name and value; given by the trainer.
        seconds: processor time that the comparison of one answer may take.

    Raises:
        TypeError: an answer is neither text, a number nor None.
        RewardError: no process can be started to compare expressions in.
    """
    questions = [None] * len(completions) if prompts is None else [_question(prompt) for prompt in prompts]
    scores: list[float | None] = []
    open_rows: list[tuple[int, workers.Request]] = []
    for row, (completion, right, question) in enumerate(zip(completions, answer, questions, strict=True)):
        gold = _gold(right)
        if gold is None or not _readable(gold, seconds):
            scores.append(None)
            continue
        scores.append(0.0)
        request = _compared(text_of(completion), gold, question)
        if isinstance(request, workers.Request):
            open_rows.append((row, request))
        else:
            scores[row] = float(request)
    for (row, _), same in zip(
        open_rows, _judged([request for _, request in open_rows], seconds), strict=True
    ):
        scores[row] = float(same)
    if log_metric is not None and scores:
        log_metric("math_answer_unreadable", scores.count(None) / len(scores))
    return scores


def _question(prompt: Any) -> str:
    """The user's last words of a prompt."""
    if isinstance(prompt, str):
        return prompt
    return next((m["content"] for m in reversed(list(prompt)) if m.get("role") == "user"), "")


def _gold(right: Any) -> str | None:
    if right is None or isinstance(right, bool):
        return None
    if isinstance(right, int | float):
        return repr(right) if math.isfinite(right) and abs(right) < 10**300 else None
    if not isinstance(right, str):
        raise TypeError(f"the answer column holds {right!r:.60}, not text or a number")
    return right


def _readable(gold: str, seconds: float) -> bool:
    """Whether there is something to compare with; says so once where there is not."""
    read = judging.read_gold(gold)
    return read.fault is None or _known_to_math_verify(gold, seconds)


@functools.lru_cache(maxsize=4096)
def _known_to_math_verify(gold: str, seconds: float) -> bool:
    read = judging.read_gold(gold)
    if second_opinion.may_read(read.text):
        request = workers.Request(gold, None, warm=True)
        if workers.shared().judge([request], seconds=seconds) == ["same"]:
            return True
    _log.warning(
        "the right answer %r cannot be read (%s), so math_answer gives its rollouts no reward",
        gold[-80:],
        read.fault,
    )
    return False


def _compared(completion: str, gold: str, question: str | None) -> bool | workers.Request:
    """Whether the completion is right, or what has to be asked for that."""
    read = judging.read_gold(gold)
    try:
        found = judging.find(completion, read, question)
    except (UnreadableError, RecursionError):
        return False
    if read.fault is not None:
        return workers.Request(gold, found.text, warm=True)
    try:
        return judging.compare(read, found, Exact())
    except UndecidedError:
        return workers.Request(gold, found.text, found.boxes)
    except Exception as error:  # a fault of ours in one answer of a million must not end a run
        _log.warning(
            "math_answer could not compare %.80r with %.80r (%s: %s), and scored 0",
            found.text,
            gold,
            type(error).__name__,
            error,
        )
        return False


def _judged(requests: Sequence[workers.Request], seconds: float) -> list[bool]:
    """Whether each is right; what is asked more than once is compared once."""
    different = list(dict.fromkeys(requests))
    verdicts = dict(zip(different, workers.shared().judge(different, seconds=seconds), strict=True))
    for request, verdict in verdicts.items():
        if verdict == "died" or verdict.startswith("fault"):
            _log.warning(
                "math_answer could not compare %.80r with %.80r (%s), and scored 0",
                request.answer,
                request.gold,
                verdict,
            )
    return [verdicts[request] == "same" for request in requests]
