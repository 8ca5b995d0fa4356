"""BLEU against a reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from groupwise.rewards.completions import text_of
from groupwise.rewards.libraries import library
from groupwise.rewards.references import texts_in

FORMULA = "brevity penalty * exp(mean of log n-gram precisions, n = 1..{max_order})"


def bleu(
    completions: Sequence[Any],
    reference: Sequence[Any],
    *,
    tokenize: Literal["13a", "intl", "zh", "char", "none"] = "13a",
    lowercase: bool = False,
    max_order: Annotated[int, Ge(1), Le(9)] = 4,
) -> list[float | None]:
    """BLEU of one completion, from 0 to 1: brevity penalty times the geometric mean of the n-gram precisions.

    Papineni et al. 2002 ("BLEU: a method for automatic evaluation of machine translation", ACL), as sacrebleu
    computes it for single sentences (Post 2018, arXiv 1804.08771): its score / 100, with exponential smoothing of
    orders without a match, and only the orders that the completion is long enough for.

    Edge cases: a row without a reference gives None; a blank completion scores 0. Several references of a row are
    matched together, as BLEU defines it. On single short texts BLEU is coarse; `rouge` and `similarity` are smoother.

    Args:
        completions: text or messages, [N].
        reference: a text, or a list of texts, [N].
        tokenize: sacrebleu's tokeniser: 13a for text with spaces between words, intl for all punctuation of
            Unicode, zh for Chinese, char for single characters, none for text that is tokenised already.
        lowercase: upper and lower case do not count.
        max_order: longest n-gram.

    Raises:
        ConfigError: sacrebleu is not installed.
        TypeError: a reference is neither text nor a list of texts.
    """
    metrics = library("sacrebleu.metrics", package="sacrebleu", extra="text", scorer="bleu")
    # `force` leaves out a remark on standard error about texts that look tokenised; it changes no number.
    metric = metrics.BLEU(
        tokenize=tokenize, lowercase=lowercase, max_ngram_order=max_order, effective_order=True, force=True
    )
    scores: list[float | None] = []
    for completion, row in zip(completions, reference, strict=True):
        references, said = texts_in(row), text_of(completion)
        if not references:
            scores.append(None)
        elif not said.strip():
            scores.append(0.0)
        else:
            # Rounding of its logarithms leaves 100.00000000000004 for the same text.
            scores.append(min(1.0, float(metric.sentence_score(said, references).score) / 100))
    return scores
