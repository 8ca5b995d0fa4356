"""The answer as a number."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any

from annotated_types import Ge

from groupwise.rewards.completions import text_of, without_reasoning
from groupwise.rewards.numbers import Number, last_number, number_at, only_number, plain

FORMULA = "1 if |number in the completion - number in the answer| <= {tolerance:g}, else 0"

_MARKER = re.compile(r"(?<!#)####(?!#)[ \t\xa0*_`$=:]{0,8}")
_HEADING = re.compile(r"[.):][ \t]+[^\W\d]")
_BOX = re.compile(r"\\boxed(?![a-z])\s{0,3}")


def numeric(
    completions: Sequence[Any], answer: Sequence[Any], *, tolerance: Annotated[float, Ge(0)] = 0.0
) -> list[float | None]:
    r"""1 when |number in the completion - number in the answer| <= tolerance, 0 when not; both exact rationals.

    The completion's number is what the last `\boxed{}` holds, or what follows the last `####` (the published form of
    GSM8K, Cobbe et al. 2021, arXiv 2110.14168), whichever comes later; without either, the last number of the text.
    Reasoning, up to `</think>` and the like, is not read, and one that is never closed leaves nothing. The answer's
    number is found the same way, but without box or marker the answer has to hold exactly one.

    Read as one number: thousands marks (`1,234`, `1 234` with unbreakable spaces, `1'234`), signs in any dash,
    currency, decimals, `3/4`, `\frac{3}{4}`, `1½`, `12 1/2`, `1e6`, `2 \times 10^3`, `4²` (16), digits of any script.
    `35%` equals 35% and 0.35; it also equals a bare 35 in the answer column, as a question may ask for per cent.

    Edge cases: an answer without a number gives None. A completion without one scores 0, and so does one whose last
    number is not readable as one: `1.2.3`, `3-5`, `5:18`, `7,5`, a root, more than 1,000 digits. Units and words
    such as `million` are not read. Text is never evaluated; the time is linear in its length.

    Args:
        completions: text or messages, [N].
        answer: the right number, or text with it, [N].
        tolerance: largest absolute difference, in the answer's unit.

    Raises:
        TypeError: an answer is neither text, a number nor None.
    """
    allowed = Fraction(Decimal(repr(float(tolerance))))
    scores: list[float | None] = []
    for completion, gold in zip(completions, answer, strict=True):
        right = _gold(gold)
        if right is None:
            scores.append(None)
            continue
        said = _said(text_of(completion))
        scores.append(float(said is not None and _same(said, right, allowed)))
    return scores


def _gold(gold: Any) -> Number | None:
    if gold is None or isinstance(gold, bool):
        return None
    if isinstance(gold, int | float):
        return Number(Fraction(Decimal(repr(gold))), percent=False) if math.isfinite(gold) else None
    if not isinstance(gold, str):
        raise TypeError(f"the answer column holds {gold!r:.60}, not a number or text with one")
    text = plain(gold)
    if "####" in text:
        return only_number(text.rpartition("####")[2])
    boxed, number, _ = _boxed(text)
    if boxed:
        return number
    return None if re.fullmatch(r"\s*\(.*,.*\)\s*", text) else only_number(text)  # a pair is not a number


def _said(completion: str) -> Number | None:
    behind = without_reasoning(completion)
    if behind is None:
        return None
    text = plain(behind)
    boxed, number, box_start = _boxed(text)
    for marker in reversed(list(_MARKER.finditer(text))):
        if boxed and marker.start() < box_start:
            break
        line_end = text.find("\n", marker.end())
        line = text[marker.end() : line_end if line_end >= 0 else len(text)]
        whole = only_number(line) if len(line) <= 100 else None
        if whole is not None and number_at(line, 0) is not None and not _HEADING.search(line):
            return whole
        found = number_at(text, marker.end())
        # `#### 2. Add them up` and `#### Step 2` are headings, not answers.
        if found is not None and _HEADING.match(text, found[1]) is None:
            return found[0]
    return number if boxed else last_number(text)


def _boxed(text: str) -> tuple[bool, Number | None, int]:
    """Whether there is a box, the only number in the last one, and where that begins."""
    last = None
    for match in _BOX.finditer(text):
        last = match
    if last is None:
        return False, None, -1
    if not text.startswith("{", last.end()):
        found = number_at(text, last.end())
        return True, found[0] if found else None, last.start()
    depth = 0
    for i in range(last.end(), len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            number = only_number(text[last.end() + 1 : i])
            if number is not None and text.startswith("%", i + 1):
                number = Number(number.value, percent=True)
            return True, number, last.start()
    return True, None, last.start()  # cut off before the box was closed


def _same(said: Number, right: Number, allowed: Fraction) -> bool:
    readings = [(said.value, right.value)]
    if said.percent and not right.percent:
        readings = [(said.value / 100, right.value)]
        if abs(right.value) >= 1:  # below 1 a bare answer is the share itself: 0.35% is not 0.35
            readings.append((said.value, right.value))
    elif right.percent and not said.percent:
        readings.append((said.value, right.value / 100))
    return any(abs(a - b) <= allowed for a, b in readings)
