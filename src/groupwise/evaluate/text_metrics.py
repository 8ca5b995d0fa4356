"""Metrics of text: overlap with a reference, diversity, and perplexity under another model."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.errors import DataError
from groupwise.registry import nearest
from groupwise.rewards.libraries import library
from groupwise.rewards.references import texts_in
from groupwise.rewards.scorers.rouge import rouge

if TYPE_CHECKING:
    from groupwise.model.logprobs import TokenLogprobs
    from groupwise.records import Group

_MOST_REFERENCES = 32
"""Other responses that one is compared with in self-BLEU; more change its value little and cost their square."""


def overlap(groups: Sequence[Group], column: str) -> dict[str, float]:
    """BLEU over all responses together, and the means of ROUGE-1, ROUGE-2 and ROUGE-L (f1), each from 0 to 1.

    BLEU is a number of the whole corpus (Papineni et al. 2002), as sacrebleu's `corpus_bleu` gives it / 100; ROUGE is
    a mean of single responses (Lin 2004), as rouge-score gives it without stemming; where a reference has no word of
    a to z, of which alone rouge-score takes notice, the words of all are those of every script. Of several references
    of a row BLEU takes all together and ROUGE the best one.

    Args:
        groups: responses, [P]; rows without a reference are left out.
        column: holds a text, or a list of texts, per row.

    Raises:
        DataError: no row has the column, or a row holds something else; names the row and the remedy.
        ConfigError: sacrebleu or rapidfuzz is not installed.
    """
    sacrebleu = library("sacrebleu", package="sacrebleu", extra="text", scorer="bleu")
    said: list[str] = []
    references: list[list[str]] = []
    wanted_P = references_in([(group.prompt.id, group.prompt.columns) for group in groups], column)
    for group, wanted in zip(groups, wanted_P, strict=True):
        if wanted:
            said += [rollout.text for rollout in group.rollouts_G]
            references += [wanted] * len(group.rollouts_G)
    # sacrebleu takes the first references of all texts, then the second ones; a missing one is None.
    count = max(map(len, references))
    columns = [[each[i] if i < len(each) else None for each in references] for i in range(count)]
    found = {"bleu": float(sacrebleu.corpus_bleu(said, columns, force=True).score) / 100}
    texts = [text for each in references for text in each if re.search(r"[^\W_]", text)]
    latin = all(re.search("[a-zA-Z0-9]", text) for text in texts)
    for kind in ("1", "2", "L"):
        values = rouge(said, references, kind=kind, words="ascii" if latin else "unicode")
        found[f"rouge_{kind.lower()}"] = float(np.mean([value for value in values if value is not None]))
    return found


def references_in(rows: Sequence[tuple[str, Mapping[str, Any]]], column: str) -> list[list[str]]:
    """What responses to each row are compared with; nothing for a row without a text.

    Args:
        rows: where each is, and its columns.
        column: holds a text, or a list of texts, per row.

    Raises:
        DataError: see `overlap`.
    """
    found = []
    for place, columns in rows:
        if column not in columns:
            near = nearest(column, columns)
            hint = f"did you mean {near!r}?" if near else f"the row has {', '.join(columns) or 'none'}"
            raise DataError(f"{place}: no column {column!r} to compare with; {hint}")
        try:
            found.append(texts_in(columns[column], column))
        except TypeError as error:
            raise DataError(f"{place}: {error}") from None
    if not any(found):
        raise DataError(f"no row has text in the column {column!r}, so there is nothing to compare with")
    return found


def diversity(groups: Sequence[Group]) -> dict[str, float]:
    """How much the responses differ: distinct-1 and distinct-2 over all, and self-BLEU within each prompt's.

    distinct-n (Li et al. 2016, arXiv 1510.03055) is the number of different n-grams of words divided by that of all.
    self-BLEU (Zhu et al. 2018, arXiv 1802.01886) is the mean BLEU of each response with the others to its prompt as
    references, by sacrebleu's sentences / 100: 1 where all are the same; left out where no prompt has two.

    Args:
        groups: responses, [P].

    Raises:
        ConfigError: sacrebleu is not installed.
    """
    words = [rollout.text.split() for group in groups for rollout in group.rollouts_G]
    found = {f"distinct_{n}": distinct(words, n) for n in (1, 2)}
    alike = [value for group in groups for value in self_bleu([r.text for r in group.rollouts_G])]
    if alike:
        found["self_bleu"] = float(np.mean(alike))
    return found


def distinct(words: Sequence[Sequence[str]], n: int) -> float:
    """Different n-grams divided by all n-grams; NaN where no text is that long.

    Args:
        words: each text as its words.
        n: length of the runs that are counted.
    """
    grams = Counter(tuple(text[i : i + n]) for text in words for i in range(len(text) - n + 1))
    return len(grams) / grams.total() if grams else math.nan


def self_bleu(texts_G: Sequence[str]) -> list[float]:
    """BLEU of each text with the others as references, from 0 to 1; nothing for a single text.

    Of more than 33 texts each is compared with the 32 that follow it, the last with the first ones.

    Raises:
        ConfigError: sacrebleu is not installed.
    """
    metrics: Any = library("sacrebleu.metrics", package="sacrebleu", extra="text", scorer="bleu")
    metric = metrics.BLEU(effective_order=True, force=True)
    count = min(len(texts_G) - 1, _MOST_REFERENCES)
    return [
        float(
            metric.sentence_score(text, [texts_G[(i + j) % len(texts_G)] for j in range(1, count + 1)]).score
        )
        / 100
        for i, text in enumerate(texts_G)
        if count > 0
    ]


def perplexity(groups: Sequence[Group], scorer: TokenLogprobs, *, limit_tokens: int) -> float:
    """exp of the mean negative log-prob of all response tokens, stop tokens included, at temperature 1.

    Args:
        groups: responses, [P].
        scorer: of the model under which they are scored; it reads the same token ids.
        limit_tokens: prompt and response tokens of a forward pass, unless a single group has more.
    """
    import torch

    from groupwise.model.shared_prefix import Family

    total, count = 0.0, 0
    with torch.no_grad():
        for batch in _batches(groups, limit_tokens):
            families = [
                Family(
                    prompt_ids=group.prompt.token_ids,
                    responses=[r.token_ids_T for r in group.rollouts_G if len(r.token_ids_T)],
                )
                for group in batch
            ]
            families = [family for family in families if family.responses]
            if families:
                logprobs, _ = scorer(families, temperature=1.0)
                total, count = total + float(logprobs.double().sum()), count + len(logprobs)
    return math.exp(-total / count) if count else math.nan


def _batches(groups: Sequence[Group], limit_tokens: int) -> Iterator[list[Group]]:
    batch: list[Group] = []
    held = 0
    for group in groups:
        tokens = sum(len(group.prompt.token_ids) + len(r.token_ids_T) for r in group.rollouts_G)
        if batch and held + tokens > limit_tokens:
            yield batch
            batch, held = [], 0
        batch, held = [*batch, group], held + tokens
    if batch:
        yield batch
