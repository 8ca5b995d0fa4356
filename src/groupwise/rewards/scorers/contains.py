"""Whether a short completion holds the answer."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Annotated, Any

from annotated_types import Ge

from groupwise.rewards.completions import text_of
from groupwise.rewards.references import UNSPACED, texts_in

FORMULA = (
    "1 if an answer stands between word borders beside at most {max_extra_words} words, and not in a list of "
    "alternatives, else 0"
)

_LETTER = rf"[^\W{UNSPACED}]"
_LEFT, _RIGHT = rf"(?<!{_LETTER})(?<!\w-)", rf"(?!{_LETTER}|-\w|[+#]+(?!\w))"  # C is not C++
_MINUS = "-\u2212\u2013"
_LEFT_OF_FIGURE = rf"(?<!{_LETTER})(?<![{_MINUS}.])(?<![{_MINUS}][$€£¥])(?<!\d[,:'/+*^])"
_RIGHT_OF_FIGURE = rf"(?!{_LETTER}|-\w|[.,:'/+*^{_MINUS}]\d)"
_NEAR = 80
_BEFORE = re.compile(r"[/|]\s*$")
_AFTER = re.compile(r"\s*[/|]")


def contains(
    completions: Sequence[Any],
    answer: Sequence[Any],
    choices: Sequence[Any] | None = None,
    *,
    max_extra_words: Annotated[int, Ge(0)] = 12,
    joiners: tuple[str, ...] = ("or", "oder", "ou"),
) -> list[float | None]:
    """1 when the answer stands in the completion and the completion commits itself to it, 0 when not.

    Containment alone is a trap: an answer inside a longer word counts, everything contains the empty text, and a
    list of all candidates always holds the right one. So the answer has to stand between word borders, with at most
    `max_extra_words` words beside it, and not as one of several alternatives. Only the answer in the completion
    counts, never the completion in the answer.

    A number has the borders of numbers: 124 stands neither in -124 nor in 124.5, 124,000, 124-125 or 124:30, and a word
    not in one with a hyphen. Of scripts that are written without spaces (Chinese, Japanese, Thai, ...) each letter is a
    word, and an answer of two letters or more needs no border.

    Edge cases: an empty completion scores 0. An answer that is None or blank gives None. With `choices`, a
    completion that names another choice too scores 0. Without, alternatives are told by a joiner, `/` or `|` on
    either side of the answer, and by two or more commas, semicolons, question marks, dashes, "and" or line ends when
    nothing but single items of at most three words stands between them. "not a beagle" is not understood: where
    answers may be denied, ask for a form and use `exact`. Upper and lower case do not count.

    Args:
        completions: text or messages, [N].
        answer: the right text, or a list of texts of which one is enough, [N].
        choices: per rollout a list of the candidates, the right one among them, or None, [N].
        max_extra_words: most words beside the answer.
        joiners: words that join alternatives.

    Raises:
        TypeError: an answer or choices are neither text nor a list of texts.
    """
    rows = [None] * len(completions) if choices is None else choices
    scores: list[float | None] = []
    for completion, gold, others in zip(completions, answer, rows, strict=True):
        wanted = [_form(text) for text in texts_in(_text(gold), "answer")]
        if not wanted:
            scores.append(None)
            continue
        said = _form(text_of(completion))
        wrong = [_form(text) for text in texts_in(others, "choices")]
        wrong = [text for text in wrong if text not in wanted]
        scores.append(float(_commits(said, wanted, wrong, max_extra_words, joiners)))
    return scores


def _text(gold: Any) -> Any:
    return str(gold) if isinstance(gold, int) and not isinstance(gold, bool) else gold


def _form(text: str) -> str:
    lines = unicodedata.normalize("NFC", text).casefold().splitlines()
    return "\n".join(" ".join(line.split()) for line in lines if line.strip())


def _commits(
    said: str, wanted: Sequence[str], wrong: Sequence[str], most: int, joiners: Sequence[str]
) -> bool:
    if any(_found(other, said) for other in wrong):
        return False
    for answer in wanted:
        found = _found(answer, said)
        if found and _words(said) - _words(answer) <= most:
            before, after = said[: found.start()], said[found.end() :]
            return not (_joined(before, after, joiners) or _listed(said))
    return False


def _words(text: str) -> int:
    return len(re.sub(f"[{UNSPACED}]", " x ", text).split())


def _found(text: str, said: str) -> re.Match[str] | None:
    left = _LEFT_OF_FIGURE if text[0].isdigit() else _LEFT
    right = _RIGHT_OF_FIGURE if text[-1].isdigit() else _RIGHT
    if len(text) > 1:
        left = "" if re.match(f"[{UNSPACED}]", text[0]) else left
        right = "" if re.match(f"[{UNSPACED}]", text[-1]) else right
    return re.search(left + re.escape(text) + right, said)


def _joined(before: str, after: str, joiners: Sequence[str]) -> bool:
    before, after = before[-_NEAR:], after[:_NEAR]  # what follows looks at the end and the start alone
    if _BEFORE.search(before) or _AFTER.match(after):
        return True
    # Two words before, since an article may stand between: "a poodle or a beagle".
    beside = [*re.findall(r"\w+", before)[-2:], *re.findall(r"\w+", after)[:1]]
    return any(joiner.casefold() in beside for joiner in joiners)


def _listed(said: str) -> bool:
    """Three or more items in a row, each of at most three words, and nothing else."""
    items = re.split(r"[,;\n?&]|\s[-\u2013\u2014\u2022]\s|\b(?:and|vs)\b", said)
    items = [item for item in items if item.strip()]
    return len(items) >= 3 and all(len(item.split()) <= 3 for item in items)
