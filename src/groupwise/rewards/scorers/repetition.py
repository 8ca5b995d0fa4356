"""A penalty on saying the same again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from annotated_types import Ge

from groupwise.rewards.completions import text_of

FORMULA = "-{penalty:g} * (1 - distinct n-grams / n-grams), n-grams of {n} {unit}"


def repetition(
    completions: Sequence[Any],
    *,
    n: Annotated[int, Ge(1)] = 3,
    penalty: Annotated[float, Ge(0)] = 1.0,
    unit: Literal["words", "characters"] = "words",
) -> list[float]:
    """-penalty * (1 - distinct n-grams / n-grams): 0 when no n-gram comes twice, towards -penalty for a loop.

    The share of n-grams that came before is the penalty of Yeo et al. 2025 ("Demystifying long chain-of-thought
    reasoning in LLMs", arXiv 2502.03373), given to the whole completion. 1 minus it is distinct-n (Li et al. 2016,
    arXiv 1510.03055) of one text. A penalty: it says nothing for a completion, so it goes with a reward that does.

    Edge cases: a text of fewer than n units has no n-gram and scores 0; the empty one too. Upper and lower case do not
    count. Long texts repeat common n-grams without harm, so a larger n suits longer answers. Characters are for
    languages written without spaces; n should then be larger too.

    Args:
        completions: text or messages, [N].
        n: units in an n-gram.
        penalty: score of endless repetition, as a positive number.
        unit: what n-grams are made of; words stand between white space.
    """
    return [-penalty * _repeated(text_of(completion), n, unit) + 0.0 for completion in completions]


def _repeated(text: str, n: int, unit: str) -> float:
    """The share of n-grams that stood before, in the text."""
    folded = text.casefold()
    pieces: Sequence[str] = folded.split() if unit == "words" else " ".join(folded.split())
    count = len(pieces) - n + 1
    if count < 1:
        return 0.0
    return 1 - len({tuple(pieces[i : i + n]) for i in range(count)}) / count
