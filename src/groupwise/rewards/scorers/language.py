"""How much of a completion is in the language asked for."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

from groupwise.rewards.completions import text_of
from groupwise.rewards.libraries import library

FORMULA = "letters in passages of the language / letters"

_SHORT = 40
"""Letters below which a passage is joined with its neighbour, since a few words do not tell a language."""
_LETTERS = re.compile(r"[^\W\d_]")
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]{1,200}`|https?://\S+", re.DOTALL)


def language(
    completions: Sequence[Any],
    language: Sequence[str | None] | None = None,
    *,
    code: str | None = None,
    among: tuple[str, ...] = (),
) -> list[float | None]:
    """Letters in passages of the language / letters, from 0 to 1.

    A share, so that an answer that mixes languages falls between: the language consistency reward of DeepSeek-R1
    (2025, arXiv 2501.12948, section 2.3.2), counted in letters, since words are not marked in every script. A
    passage is a sentence or line, joined with the next while it has fewer than 40 letters; its language is the
    likeliest by py3langid (naive Bayes over byte n-grams, 140 languages, data in the package). Blocks and spans of
    code and web addresses are left out.

    Edge cases: a completion without letters scores 0, so an empty one is never paid. A row without a language gives
    None. Short answers are guessed badly among 140 languages: name the candidates in `among`. Close languages
    (Norwegian and Danish, Serbian and Bosnian) are mixed up.

    Args:
        completions: text or messages, [N].
        language: per rollout the language's ISO 639 code such as de, or None for the setting, [N].
        code: language of the rows that name none.
        among: codes of the languages to choose from; empty for all.

    Raises:
        ConfigError: py3langid is not installed.
        ValueError: a code that is not known or not in `among`, or no language at all.
    """
    library("py3langid.langid", package="py3langid", extra="text", scorer="language")
    if code is None and language is None and completions:
        raise ValueError("there is no language: give the setting code, or data with a column 'language'")
    names = [code] * len(completions) if language is None else [own or code for own in language]
    if code is not None or among:
        _check([code] if code is not None else [], among)
    _check([name for name in dict.fromkeys(names) if name is not None], among)
    return [
        None if name is None else _share(text_of(completion), name, among)
        for completion, name in zip(completions, names, strict=True)
    ]


def needed_columns(*, code: str | None = None, among: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The columns that these settings cannot do without."""
    return ("language",) if code is None else ()


def _check(names: Sequence[Any], among: tuple[str, ...]) -> None:
    if not names and not among:
        return
    known = _identifier().labels
    for name in [*among, *names]:
        if not isinstance(name, str) or name not in known:
            raise ValueError(f"{name!r:.60} is no language that py3langid knows; codes are like en, de, zh")
    outside = next((name for name in names if among and name not in among), None)
    if outside is not None:
        raise ValueError(f"the language {outside!r} is not in among ({', '.join(among)}); add it")


@functools.cache
def _identifier() -> Any:
    langid = library("py3langid.langid", package="py3langid", extra="text", scorer="language")
    return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)


def _share(text: str, name: str, among: tuple[str, ...]) -> float:
    letters = right = 0
    for passage, count in _passages(_CODE.sub(" ", text)):
        letters += count
        right += count * (_likeliest(passage, among) == name)
    return right / letters if letters else 0.0


def _likeliest(passage: str, among: tuple[str, ...]) -> str:
    ranked = (label for label, _ in _identifier().rank(passage))
    return str(next(label for label in ranked if not among or label in among))


def _passages(text: str) -> list[tuple[str, int]]:
    """Sentences or lines with their number of letters; short ones joined with the next, at the end with the last."""
    passages: list[tuple[str, int]] = []
    held, count = "", 0
    for sentence in re.split(r"(?<=[.!?。！？])\s*|\n", text):
        held, count = f"{held} {sentence}", count + len(_LETTERS.findall(sentence))
        if count >= _SHORT:
            passages.append((held, count))
            held, count = "", 0
    if count and passages:
        before, letters = passages.pop()
        held, count = f"{before} {held}", letters + count
    return [*passages, (held, count)] if count else passages
