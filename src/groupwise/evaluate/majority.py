"""Majority vote: the answer that most samples of a prompt agree on."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.records import Group
from groupwise.rewards.mathematics.finding import find_answer
from groupwise.rewards.mathematics.nodes import UnreadableError
from groupwise.rewards.numbers import only_number, plain


def vote(answers_G: Sequence[str | None], passed_G: Sequence[bool]) -> float:
    """The chance that the most frequent answer passes; ties are broken by lot.

    Self-consistency (Wang et al. 2022, arXiv 2203.11171). Samples without an answer do not vote; when none has one,
    nothing passes. Where the rewards judge alike answers differently, the share of them that pass counts.

    Args:
        answers_G: the answer of each sample in a form in which equal answers are equal texts; None for none.
        passed_G: whether the sample passes.
    """
    votes: dict[str, list[bool]] = {}
    for answer, passed in zip(answers_G, passed_G, strict=True):
        if answer is not None:
            votes.setdefault(answer, []).append(passed)
    if not votes:
        return 0.0
    most = max(map(len, votes.values()))
    shares = [sum(passed) / len(passed) for passed in votes.values() if len(passed) == most]
    return sum(shares) / len(shares)


def answers_of(group: Group) -> list[str | None]:
    """The answer of each response of a group, as `vote` takes them.

    It is what `math_answer` finds, a number in lowest terms (`0.5`, `1/2` and `50%` vote together); where that finds
    nothing, the last line of the response in lower case without marks at its ends.
    """
    return [_answer(rollout.text, group.prompt.text) for rollout in group.rollouts_G]


def _answer(text: str, prompt: str) -> str | None:
    try:
        found = find_answer(text, prompt=prompt).text
    except (UnreadableError, RecursionError):
        found = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    number = only_number(plain(found))
    if number is not None:
        return str(number.value / 100 if number.percent else number.value)
    return " ".join(found.casefold().split()).strip(" .,;:!?*_`\"'$") or None
