"""Rows that repeat one another: within the training data, and between it and what is held out. Needs no model."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from groupwise.errors import DataError

if TYPE_CHECKING:
    from groupwise.config.prompts import PromptsConfig
    from groupwise.prompts.load import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """What was found, and the training rows that stay."""

    train: list[Row]
    """To train on."""
    sentences: tuple[str, ...]
    """For people; none where nothing repeats."""


def without_repeats(train: Sequence[Row], held_out: Sequence[Row], config: PromptsConfig) -> Overlap:
    """Find rows that repeat one another, and do what `prompts.duplicates` and `prompts.overlap` say.

    A training row is a duplicate when an earlier one has the same value in every column. Equal prompts with different
    columns, such as two answers, are counted apart and always stay. A prompt is held out as well when its words are
    the same in the same order: case, spaces and punctuation do not count, nor does a system prompt.

    Args:
        train: rows to train on, checked.
        held_out: rows to evaluate on, checked.
        config: the section `prompts`.

    Raises:
        DataError: training rows are held out as well and `prompts.overlap` is `error`, or nothing is left to train on.
    """
    said: list[str] = []
    first: dict[str, Row] = {}
    repeats = []
    for row in train:
        key = _whole(row)
        if key in first:
            repeats.append(row)
        first.setdefault(key, row)
    kept = list(first.values()) if config.duplicates == "drop" else list(train)
    if repeats:
        what = "left out" if config.duplicates == "drop" else "each kept as a prompt of its own"
        said.append(
            f"{len(repeats)} of {len(train)} training rows repeat an earlier one in every column, {what} "
            f"(prompts.duplicates: {config.duplicates}); the first is {repeats[0].place}."
        )
    asked = len({json.dumps(_asked(row, config), default=repr) for row in first.values()})
    if asked < len(first):
        said.append(
            f"{len(first) - asked} training rows ask what another asks, with other columns such as another answer; "
            "each stays a prompt of its own."
        )
    return _held_out(kept, held_out, config, said)


def _held_out(train: list[Row], held_out: Sequence[Row], config: PromptsConfig, said: list[str]) -> Overlap:
    trained = {_words(row, config): row for row in reversed(train)}
    shared = [row for row in held_out if _words(row, config) in trained]
    if not shared:
        return Overlap(train=train, sentences=tuple(said))
    example = f"{shared[0].place} is {trained[_words(shared[0], config)].place}"
    counted = f"{len(shared)} of {len(held_out)} held-out prompts are trained on as well (such as {example})"
    if config.overlap == "error":
        raise DataError(
            f"{counted}; take them out, or set prompts.overlap to drop, which leaves them out of training"
        )
    if config.overlap == "tell":
        said.append(f"{counted}, so held-out results flatter (prompts.overlap: tell).")
        return Overlap(train=train, sentences=tuple(said))
    others = {_words(row, config) for row in shared}
    left = [row for row in train if _words(row, config) not in others]
    if not left:
        raise DataError(
            f"{counted}, so prompts.overlap: drop leaves nothing to train on; hold other rows out"
        )
    said.append(f"{counted}: {len(train) - len(left)} training rows left out (prompts.overlap: drop).")
    return Overlap(train=left, sentences=tuple(said))


def _whole(row: Row) -> str:
    return json.dumps(dict(row.columns), sort_keys=True, default=repr)


def _asked(row: Row, config: PromptsConfig) -> list[Any]:
    """All that the model is asked: the prompt, the turns before it and the system prompt."""
    named = config.columns
    return [row.columns.get(name) for name in (named.prompt, named.history, named.system) if name is not None]


def _words(row: Row, config: PromptsConfig) -> tuple[str, ...]:
    """The words of prompt and history, without case and punctuation; a prompt without words by its characters."""
    texts = list(_texts(_asked(row, config)[: 1 if config.columns.history is None else 2]))
    text = unicodedata.normalize("NFKC", "\n".join(texts)).casefold()
    # Sums differ by their signs alone, so a sign between words is a word too.
    words = re.findall(r"[^\W_]+|[+*/=<>^%-]", text)
    return tuple(words) or (text,)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return _texts(value.get("content"))
    if isinstance(value, list | tuple):
        return [text for inner in value for text in _texts(inner)]
    return []
