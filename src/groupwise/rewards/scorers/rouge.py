"""ROUGE against a reference."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from groupwise.rewards.completions import text_of
from groupwise.rewards.libraries import library
from groupwise.rewards.references import UNSPACED, texts_in

FORMULA = "{measure} of ROUGE-{kind}: overlap of n-grams, or the longest common subsequence for L"

_UNICODE = rf"[{UNSPACED}]|(?:(?![{UNSPACED}])[^\W_])+"


def rouge(
    completions: Sequence[Any],
    reference: Sequence[Any],
    *,
    kind: Literal["1", "2", "L"] = "L",
    measure: Literal["f1", "precision", "recall"] = "f1",
    words: Literal["ascii", "unicode"] = "ascii",
) -> list[float | None]:
    """ROUGE-1, ROUGE-2 or ROUGE-L, from 0 to 1.

    recall = overlap / (n-grams of the reference), precision = overlap / (n-grams of the completion), f1 = 2 P R / (P
    + R). The overlap counts common n-grams, each as often as it is in both; for L it is the longest common
    subsequence of words. Lin 2004 ("ROUGE: a package for automatic evaluation of summaries", ACL workshop on text
    summarization). The numbers are those of the package rouge-score without stemming, in time that long completions
    do not make prohibitive.

    Edge cases: a row without a reference gives None; a completion without words scores 0. With several references
    the best counts. `ascii` takes a to z and 0 to 9 for words and drops all else, as rouge-score does; texts in other
    scripts need `unicode`. Recall alone pays for saying everything; f1 does not.

    Args:
        completions: text or messages, [N].
        reference: a text, or a list of texts, [N].
        kind: 1 for single words, 2 for pairs, L for the longest common subsequence.
        measure: which of the three numbers.
        words: runs of a-z and 0-9, or of letters and digits of every script, where each letter of scripts without
            spaces (Chinese, Japanese, Thai, ...) is a word; upper and lower case do not count.

    Raises:
        ConfigError: rapidfuzz is not installed, where it is L.
        TypeError: a reference is neither text nor a list of texts.
        ValueError: a reference has letters, of which `ascii` takes none, so that every completion would score 0.
    """
    common = _common_subsequence() if kind == "L" else None
    scores: list[float | None] = []
    for completion, row in zip(completions, reference, strict=True):
        said = _words(text_of(completion), words)
        for text in texts_in(row):
            if not _words(text, words) and _words(text, "unicode"):
                raise ValueError(
                    f"the reference {text!r:.60} has no word of a to z or 0 to 9; set words: unicode"
                )
        found = [_measured(said, _words(text, words), kind, measure, common) for text in texts_in(row)]
        scores.append(max(found) if found else None)
    return scores


def _common_subsequence() -> Any:
    return library("rapidfuzz.distance", package="rapidfuzz", extra="text", scorer="rouge").LCSseq.similarity


def _words(text: str, words: str) -> list[str]:
    return re.findall(r"[a-z0-9]+" if words == "ascii" else _UNICODE, text.lower())


def _measured(said: list[str], wanted: list[str], kind: str, measure: str, common: Any) -> float:
    if kind == "L":
        overlap, of_said, of_wanted = common(said, wanted), len(said), len(wanted)
    else:
        n = int(kind)
        ours, theirs = _ngrams(said, n), _ngrams(wanted, n)
        overlap, of_said, of_wanted = (ours & theirs).total(), ours.total(), theirs.total()
    precision = overlap / of_said if of_said else 0.0
    recall = overlap / of_wanted if of_wanted else 0.0
    if measure != "f1":
        return precision if measure == "precision" else recall
    return 2 * precision * recall / (precision + recall) if overlap else 0.0


def _ngrams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
