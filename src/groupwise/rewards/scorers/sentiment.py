"""The tone of a completion, by a lexicon."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any, Literal

from groupwise.rewards.completions import text_of
from groupwise.rewards.libraries import library

FORMULA = (
    "(1 + s) / 2 towards positive, (1 - s) / 2 negative, 1 - |s| neutral; s = mean over sentences of VADER's compound; "
    "towards {towards}"
)

_MOST_WORDS = 50
"""Words after which a sentence is cut: VADER's time grows with the cube of the length, so one endless sentence would
take minutes."""


def sentiment(
    completions: Sequence[Any], *, towards: Literal["positive", "negative", "neutral"] = "positive"
) -> list[float]:
    """How positive (or negative, or neutral) the tone is, from 0 to 1; 0.5 is a tone without sentiment.

    s is the mean over sentences of the compound score of VADER (Hutto & Gilbert 2014, "VADER: a parsimonious
    rule-based model for sentiment analysis of social media text", ICWSM), which weighs words of a lexicon by their
    neighbours (negation, intensifiers, capitals, "but") and lies in [-1, 1]. The score is (1 + s) / 2 for positive,
    (1 - s) / 2 for negative and 1 - |s| for neutral. The mean is taken since the compound of a whole text creeps to
    1 as it grows.

    Edge cases: a completion without words scores 0, so an empty one is never paid. English only: a text of another
    language has no word in the lexicon and scores as neutral. A lexicon is easily pleased, by "great, great, great"
    for one, so combine this with what measures content.

    Args:
        completions: text or messages, [N].
        towards: the tone that is paid.

    Raises:
        ConfigError: vaderSentiment is not installed.
    """
    analyzer = _analyzer()
    return [_score(text_of(completion), towards, analyzer) for completion in completions]


@functools.cache
def _analyzer() -> Any:
    vader = library(
        "vaderSentiment.vaderSentiment", package="vaderSentiment", extra="text", scorer="sentiment"
    )
    return vader.SentimentIntensityAnalyzer()


def _score(text: str, towards: str, analyzer: Any) -> float:
    sentences = _sentences(text)
    if not sentences:
        return 0.0
    compounds = [float(analyzer.polarity_scores(sentence)["compound"]) for sentence in sentences]
    mean = sum(compounds) / len(compounds)
    if towards == "neutral":
        return 1 - abs(mean)
    return (1 + mean if towards == "positive" else 1 - mean) / 2


def _sentences(text: str) -> list[str]:
    """Sentences and lines with a word in them, the long ones cut."""
    found: list[str] = []
    for sentence in re.split(r"(?<=[.!?])\s+|\n", text):
        words = sentence.split()
        found += [" ".join(words[i : i + _MOST_WORDS]) for i in range(0, len(words), _MOST_WORDS)]
    return [sentence for sentence in found if re.search(r"\w", sentence)]
