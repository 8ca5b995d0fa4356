"""Answers that nothing announces: a text that is one, its last formula, its last number."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from groupwise.rewards.mathematics.expressions import FUNCTIONS
from groupwise.rewards.mathematics.nodes import UnreadableError
from groupwise.rewards.mathematics.prose import last_formula, leading_answer, line_at, math_as_text
from groupwise.rewards.mathematics.reading import MAX_ANSWER, readings
from groupwise.rewards.mathematics.shapes import Many, Words
from groupwise.rewards.numbers import characters

DENIED_AFTER = re.compile(
    r"[\s})\]$.\\*]{0,6}(?:is|was|are|would be|seems|looks)\s+(?:a\s+|the\s+)?(?:wrong|incorrect|not|false|mistake)\b"
    r"|[\s})\]$.\\*]{0,6}\((?:(?:this|that|which)\s+(?:is|was)\s+)?(?:wrong|incorrect|false)\b",
    re.IGNORECASE,
)
_DENIED_BEFORE = re.compile(
    r"""(?: \b(?:not|cannot|never|isn't|unlike|except|rather\ than|instead\ of|other\ than)
          | \b(?:wrong|incorrect)\s?:?
          | \b(?:any|every)thing\ but | \ball\ but
          | \b(?:more|less|fewer|greater)\ than | \b(?:just|slightly|a\ little|a\ bit)\ (?:over|under|above|below)
          | (?:n't|\bnot|\bnever)\ (?:say|think|pick|choose|guess|write|call\ it|go\ with)
          | \b(?:square|cube|root|reciprocal|inverse|opposite|negation|factorial|log(?:arithm)?(?:\ base\ \w{1,3})?
               |multiple|divisor|factor|power|fraction)s?\ of
          | \d\ (?:raised\ to(?:\ the(?:\ power(?:\ of)?)?)?|to\ the(?:\ power(?:\ of)?)?)
          | \b(?:don't|do\ not|didn't|doubt|can't|cannot|couldn't)\b[^.,;]{0,30}\b(?:is|be|it's|that's|equals?)
          | n't
          | \b(?:half|third|quarter|twice|double|triple|percent|per\ cent)(?:\s+of)?
          | %\s+of
          | [<>≠] | \\(?:ne|lt|gt)q? )
        \s* (?:(?:be|equal\ to|just|exactly|simply)\s+)? [$*_(]*$""",
    re.VERBOSE | re.IGNORECASE,
)
_LISTED_BEFORE = re.compile(
    r"""(?<![\d.,]) [-+$]?\d[\d.]*
        (?: \s*[,;/]?\s*(?:or|and)\s+(?:(?:maybe|perhaps|possibly|even)\ )?
          | \s*,\s*[-+$]?\d[\d.]*\s*,\s*(?:(?:and|or)\ )?
          | \s+[-+$]?\d[\d.]*\s+ ) [$*_]*$""",
    re.VERBOSE | re.IGNORECASE,
)
_ROUNDED = re.compile(
    r"""(?<![\w.,/^])(?P<exact>[-+]?\$?(?:\d+/\d+|\d*√\d+|\d[\d,]*\.\d+%?|\d*π(?:/\d+)?))
        \s*(?: ≈ | \(\s?(?:or\ |which\ is\ )?(?:≈|about|approximately|roughly|around)
          | ,?\s(?:or|which\ is)\s(?:about|approximately|roughly|around) )\s*$""",
    re.VERBOSE | re.IGNORECASE,
)
"""An exact value, and the words that announce its rounding: 5/36 ≈, 5/36 (about, 5/36, or about."""
_LONE = re.compile(r"(?:[-*•]\s+|\d{1,2}[.)]\s+)?(?:[a-zA-Z]\s*=\s*)?[-+$]?[\d.,]*\d[.,;]?")
"""A line that is one number."""
_CODE = re.compile(
    r"\b(?:print|eval|exec|compile|open|input|getattr|__\w{1,30}__)\s?\(|(?<!\\)\blambda\b[\w, ]{0,30}:"
    r"|^(?:return|assert|del|raise|yield)\s|^def\s\w{1,60}\s?\(|(?:^|;\s?)(?:from\s[\w.]{1,60}\s)?import\s\w|\w\[[-\d:]{1,9}\]\s?=[^=]"
)
_FIGURES = re.compile(
    "(?<![^\\W\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3])(?<![.,/^])\\d[\\d.,'\xa0_/:]*|[½¼¾⅐-⅞]|√\\S"
)
"""Digits behind no letter, but for the letters of scripts that are written without spaces."""
_SAID_OF_IT = re.compile(
    r"^(?!(?:yes|no|true|false)\b)\w['\w]*[\s,].*?\b(?:is|are|so|therefore|thus|hence)\s+([^\W\d_]{2,30})\W{0,4}$|^it's\s+([^\W\d_]{2,30})\W{0,4}$",
    re.IGNORECASE,
)
"""What a sentence says of its subject in one word, `The claim is true.`"""
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


@dataclass(frozen=True, slots=True)
class Found:
    """The answer of a completion."""

    text: str
    """As written, for `reading.readings`."""
    where: str
    """`box`, `marker`, `statement`, `whole`, `formula` or `number`."""
    boxes: tuple[str, ...] = field(default=())
    """All different boxes of the text, which together may be the answer where it has several values."""


def unstated(text: str, *, kind: str, prompt: str | None, tagged: bool) -> Found:
    """An answer that nothing announces.

    Args:
        text: without the reasoning.
        kind: see `finding.find_answer`.
        prompt: the question; None where it is not known.
        tagged: the text stood inside an answer tag.

    Raises:
        UnreadableError: there is none that can be taken; says why.
    """
    stripped = text.strip().strip("*_` ")
    if not stripped:
        raise UnreadableError("there is no answer")
    lines = [line.strip() for line in stripped.split("\n") if line.strip(" $\\[]-=_*~`#>|")]
    if _CODE.search(stripped) and len(lines) <= 1:
        raise UnreadableError("it is code, and code is never run")
    if kind == "words" and lines and (said := _SAID_OF_IT.search(lines[-1])) is not None:
        return Found(said[1] or said[2], "whole")
    if len(lines) <= 1 or tagged or r"\begin{" in stripped:
        whole = _bare(stripped, kind)
        if whole is not None:
            return Found(whole, "whole")
    if not lines:
        raise UnreadableError("there is no answer")
    if stripped.endswith("?") or re.search(r"\?\s*[\"')*]*$", stripped):
        raise UnreadableError("it ends in a question")
    least = 2 if tagged else 3
    if len(lines) >= least and len(set(lines[-least:])) > 1 and all(map(_LONE.fullmatch, lines[-least:])):
        raise UnreadableError("it ends in a list of numbers")
    if _CODE.search(lines[-1]):
        raise UnreadableError("its last line is code, and code is never run")
    last = _bare(lines[-1], kind)
    if last is not None and not _echoes(lines[-1], prompt):
        return Found(last, "whole")
    if kind == "formula" and len(lines) == 1 and not re.search(r"(?<![\\A-Za-z])[A-Za-z]{4,}", stripped):
        return Found(math_as_text(stripped).strip(), "whole")
    if last is None and not _speaks(lines[-1]):
        raise UnreadableError("its last line is a formula that cannot be read")
    if kind == "choice":
        return Found(_last_choice(stripped), "whole")
    if kind == "words":
        return Found(_last_words(stripped, lines[-1]), "whole")
    return _last_value(stripped, prompt)


def _speaks(line: str) -> bool:
    """True for a line with a word of a language in it, one that is no function; a line without one is a formula."""
    words = re.findall(r"(?<![\\\w])[^\W\d_]{2,}", re.sub(r"[\u3040-\u9fff\uac00-\ud7a3]", "words ", line))
    return any(word not in FUNCTIONS for word in words)


def _bare(text: str, kind: str) -> str | None:
    """A text that is nothing but an answer, without the formula's delimiters; None when it is anything else."""
    if len(text) > MAX_ANSWER:
        return None
    text = re.sub(
        r"^(?:[-*•]\s+|\d{1,2}[.)]\s+(?=\S)|(?:so|thus|hence|therefore|total|ans|result)\b[\s,:=]*|=\s*)+",
        "",
        text,
        flags=re.IGNORECASE,
    )
    if kind == "value":
        text = re.sub(r"^(?:A:|\([a-h]\))\s+(?=\S)", "", text)
    text = re.sub(r"^[\"'“‘«]([^\"'“”‘’«»]+)[\"'”’»]\.?$", r"\1", text)
    plain = math_as_text(text).strip().strip("*_` ")
    if not plain or plain.endswith("?"):
        return None
    try:
        shapes = readings(plain, gold=False)
    except UnreadableError:
        return None
    known = Words("all real numbers")
    if kind == "value" and all(isinstance(shape, Words) and shape != known for shape in shapes):
        return None
    if kind == "choice" and not any(
        isinstance(shape, Many) or (isinstance(shape, Words) and len(shape.text) == 1) for shape in shapes
    ):
        return None
    if kind == "value" and re.search(r"\b(?:is|are|was|were|has|have|had|will|then|each|if|for)\b", plain):
        return None
    return plain


def _echoes(sentence: str, prompt: str | None) -> bool:
    """True for a sentence of three words or more that stands in the prompt."""
    if prompt is None:
        return False
    wanted = " ".join(re.findall(r"\w+", sentence.casefold()))
    return wanted.count(" ") >= 2 and wanted in " ".join(re.findall(r"\w+", characters(prompt).casefold()))


def _last_choice(text: str) -> str:
    first = re.match(r"\W{0,3}([A-J])\W{1,4}is\s+(?:the\s+)?(?:correct|right|answer)\b", text)
    if first is not None:
        return first[1]
    tail = text[-400:]
    found = re.findall(r"\(([A-J])\)|\b(?:option|choice)\s+\(?([A-J])\b", tail)
    if found:
        listed = re.search(r"\([A-J]\)\s*(?:,|or|and|/|\s)+\s*\([A-J]\)\W*$", tail)
        if listed:
            raise UnreadableError("several choices are listed")
        last = str(found[-1][0] or found[-1][1])
        if _DENIED_BEFORE.search(tail[: tail.rindex(last)]):
            raise UnreadableError("the last choice is denied")
        return last
    lone = re.search(r"(?<![\w,])([B-HJ]|A)[\s*_.)]*$", tail)
    if lone is None or re.search(r"\b[A-J]\b\s*(?:,|or|and|/|\s)\s*" + lone[1] + r"[\s*_.)]*$", tail):
        raise UnreadableError("no choice is stated")
    if _DENIED_BEFORE.search(tail[: lone.start()]):
        raise UnreadableError("the last choice is denied")
    return lone[1]


def _last_words(text: str, last_line: str) -> str:
    first = re.match(r"\W{0,3}(yes|no|true|false)\b", text, re.IGNORECASE)
    if first is not None and not re.match(
        r"\W{0,3}(?:yes|no|true|false)\W+(?:or|and|yes|no|true|false)\b", text, re.IGNORECASE
    ):
        return str(first[1])
    return last_line


def _last_value(text: str, prompt: str | None) -> Found:
    """The last formula or number of a text, whichever ends later, if its sentence states it."""
    formula = last_formula(text)
    number = _last_number(text)
    if formula is None and number is None:
        raise UnreadableError("there is no number and no formula")
    if formula is not None and (number is None or number < formula[1]):
        start, end, answer, where = formula[0], formula[1], formula[2], "formula"
    else:
        assert number is not None
        start, where = number, "number"
        end = start + 1
        answer = leading_answer(line_at(text, start))
        if (rounded := _ROUNDED.search(text, max(0, start - 60), start)) is not None:
            start, answer = rounded.start("exact"), rf"{rounded['exact']} \approx {answer}"
    question = text.rfind("?")
    if question > end:
        raise UnreadableError("its last number stands in a question")
    before = _SENTENCE.split(text[max(0, start - 300) : start])[-1]
    if _DENIED_BEFORE.search(before):
        raise UnreadableError("its last number is denied")
    if _LISTED_BEFORE.search(before):
        raise UnreadableError("it ends in a list of numbers")
    after = _SENTENCE.split(text[start : start + 300])[0]
    if DENIED_AFTER.search(after):
        raise UnreadableError("its last number is denied")
    if re.search(r"(?:[^\W\d_]|[}\]^_])\($", text[max(0, start - 2) : start]):
        raise UnreadableError("its last number stands in a formula that cannot be read")
    if _echoes(before + after, prompt):
        raise UnreadableError("its last number stands in a sentence of the question")
    if not answer:
        raise UnreadableError("its last number cannot be read")
    return Found(answer, where)


def _last_number(text: str) -> int | None:
    """Where the last number of a text begins, its sign and currency included."""
    start = None
    for match in _FIGURES.finditer(text):
        start = match.start()
    if start is None:
        return None
    begin = start
    while begin > 0 and text[begin - 1] in "-+$€£¥₹.√" and start - begin < 3:
        begin -= 1
    if text[begin] in "-+" and begin > 0 and (text[begin - 1].isalnum() or text[begin - 1] in ")]}%"):
        begin += 1
    begin = _with_bracket(text, begin)
    signed = re.search(r"(\S\s+)?\b(negative|minus)\s+$", text[max(0, begin - 20) : begin], re.IGNORECASE)
    if signed is not None and not (signed[2].lower() == "minus" and re.match(r"[\w)}]", signed[1] or " ")):
        begin -= len(signed[0]) - len(signed[1] or "")
    mixed = re.search(r"(?<![\w.,/])[-+]?\d+[ \xa0]$", text[max(0, begin - 12) : begin])
    if mixed is not None and re.match(r"\d+/\d+", text[begin:]):
        begin -= len(mixed[0])
    return begin


def _with_bracket(text: str, begin: int) -> int:
    """Where the bracket opens in which a number stands, `(-2, 3)`, when nothing but values stand in it."""
    before = text[max(0, begin - 60) : begin]
    opened = re.search(r"(?<![A-Za-z\d])[(\[][^()\[\]\n]*$", before)
    if (
        opened is None
        or "," not in opened[0]
        or re.search(r"[A-Za-z]{2,}", re.sub(r"\\[A-Za-z]+", "", opened[0]))
    ):
        return begin
    return begin - len(opened[0])
