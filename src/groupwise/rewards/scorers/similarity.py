"""How much of a completion and a reference is the same text in the same order."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any, Literal

from groupwise.rewards.completions import text_of
from groupwise.rewards.libraries import library
from groupwise.rewards.references import texts_in

FORMULA = "2 * |longest common subsequence| / (|completion| + |reference|), in {unit}"


def similarity(
    completions: Sequence[Any],
    reference: Sequence[Any],
    *,
    unit: Literal["characters", "words"] = "characters",
    ignore_case: bool = True,
) -> list[float | None]:
    """2 * |longest common subsequence| / (|completion| + |reference|): 1 for the same text, 0 for nothing in common.

    One minus the edit distance of insertions and deletions over the sum of the lengths, by rapidfuzz (bit-parallel
    after Hyyrö 2004, "Bit-parallel LCS-length computation revisited"). Chosen over embeddings and TF-IDF, since it
    needs no model and no corpus, looks at order, and what a text is too long by lowers it. It compares spelling and
    not meaning: a good paraphrase scores low.

    Edge cases: a row without a reference gives None; a blank completion scores 0. With several references the nearest
    counts. The width of white space does not count, nor do accents written in one character or two. Unrelated texts of
    one language share about half of their letters in order, so `words` spreads the scores wider.

    Args:
        completions: text or messages, [N].
        reference: a text, or a list of texts, [N].
        unit: what is compared; words stand between white space.
        ignore_case: upper and lower case do not count.

    Raises:
        ConfigError: rapidfuzz is not installed.
        TypeError: a reference is neither text nor a list of texts.
    """
    indel = library("rapidfuzz.distance", package="rapidfuzz", extra="text", scorer="similarity").Indel
    scores: list[float | None] = []
    for completion, row in zip(completions, reference, strict=True):
        said = _form(text_of(completion), unit, ignore_case)
        nearest = [
            float(indel.normalized_similarity(said, _form(text, unit, ignore_case))) if said else 0.0
            for text in texts_in(row)
        ]
        scores.append(max(nearest) if nearest else None)
    return scores


def _form(text: str, unit: str, ignore_case: bool) -> str | list[str]:
    text = unicodedata.normalize("NFC", text)
    words = (text.casefold() if ignore_case else text).split()
    return words if unit == "words" else " ".join(words)
