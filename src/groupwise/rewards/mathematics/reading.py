"""Every way to read a text as an answer: the likeliest shape first, then what else it may mean."""

from __future__ import annotations

import functools
import re
from fractions import Fraction

from groupwise.rewards.mathematics import units
from groupwise.rewards.mathematics.nodes import UnreadableError, negative, number
from groupwise.rewards.mathematics.shapes import Many, Shape, Value, Words
from groupwise.rewards.mathematics.spelling import spell
from groupwise.rewards.mathematics.structure import shape_of
from groupwise.rewards.mathematics.tokens import Token, tokens
from groupwise.rewards.mathematics.vocabulary import listed, vocabulary

MAX_ANSWER = 1000
"""Longest answer, in characters, that is read."""

_CHOICE = re.compile(
    r"(?:(?:option|choice|answer)\s+)?[(\[]?\s*([A-Ja-j])\s*(?:[)\].:]|\)\s*[.:])?", re.IGNORECASE
)
_CHOICE_WITH_VALUE = re.compile(r"\(?([A-J])\s*[).:]\s*\S.{0,200}", re.DOTALL)
_CHOICES = re.compile(r"\(?[A-J]\)?(?:\s*(?:,|;|&|and|, and)\s*\(?[A-J]\)?)+")
_NAMES = re.compile(r"[^\W\d_][\w'.-]*(?: [^\W\d_][\w'.-]*){0,3}")
_NO_ANSWER = vocabulary(
    "see figure graph diagram picture table proof prove above below vary varies answer answers solution "
    "n/a na unknown nan null tbd todo missing blank none omitted unavailable text error undefined? the of "
    "to and in explanation"
)
_NONE = frozenset({"n/a", "na", "n.a", "none", "null", "nan", "?", "-", "tbd", "unknown"})
_COUNT = {
    word: Fraction(i)
    for i, word in enumerate(
        listed(
            "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
            "sixteen seventeen eighteen nineteen"
        )
    )
} | {
    word: Fraction(10 * i)
    for i, word in enumerate(
        ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], start=2
    )
}
_PART_OF = {
    ("and", "a", "half"): Fraction(1, 2),
    ("and", "one", "half"): Fraction(1, 2),
    ("and", "a", "third"): Fraction(1, 3),
    ("and", "a", "quarter"): Fraction(1, 4),
}
_PHRASES = {
    "empty set": "no solution",
    "the empty set": "no solution",
    "there is no solution": "no solution",
    "there are no solutions": "no solution",
    "no solution exists": "no solution",
    "no solutions exist": "no solution",
    "there is no real solution": "no solution",
    "there are no real solutions": "no solution",
    "dne": "does not exist",
    "no solution": "no solution",
    "no solutions": "no solution",
    "no real solution": "no solution",
    "no real solutions": "no solution",
    "does not exist": "does not exist",
    "infinitely many": "infinitely many",
    "infinitely many solutions": "infinitely many",
    "undefined": "undefined",
    "cannot be determined": "cannot be determined",
    "y": "yes",
    "all real numbers": "all real numbers",
}


_SPACE_AT_START = re.compile(r"\A(?:\\[,;:! ]|\\q?quad(?![a-z])|~|\s)+")
_SPACE_AT_END = re.compile(r"(?:\\[,;:!]|\\q?quad|\\+$|~|\s)+$")
_COLOURS = re.compile(r"\\(?:text)?color(?:\[\w{0,9}\])?\s?\{[^{}]{0,30}\}|\\[hv]?phantom\s?\{[^{}]{0,30}\}")
_OVER = re.compile(r"\{([^{}\\]{1,100})\\over(?![a-z])([^{}\\]{1,100})\}")
_OPEN_ENDS = re.compile(r"([\[\]])([^\[\]]+,[^\[\]]+)([\[\]])")
_TWO_UNITS = re.compile(
    r"(\d{1,9}(?:\.\d{1,9})?) ?([a-z]{1,12})\.?(?:,? and|,)? (\d{1,9}(?:\.\d{1,9})?) ?([a-z]{1,12})\.?", re.I
)


def clean(text: str) -> str:
    """A text without what stands around an answer: white space, markdown, dollar signs in pairs, closing marks."""
    if "\\" in text:
        text = _COLOURS.sub(" ", text)
    text = text.strip().strip("*_` \t\n\xa0")
    while True:
        before = text
        text = _SPACE_AT_END.sub("", _SPACE_AT_START.sub("", text))
        for opening, end in (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")):
            inside = text[len(opening) : -len(end)]
            if (
                len(text) > len(opening) + len(end)
                and text.startswith(opening)
                and text.endswith(end)
                and end not in inside
                and not inside.endswith("\\")
            ):
                text = inside.strip()
        if text.endswith((".", ";", "!")) and not text.endswith(("..", r"\!", r"\;")):
            if text.endswith("!") and re.search(r"[\w)}]!$", text) and "\n" not in text and len(text) < 12:
                break  # a factorial
            text = text[:-1].rstrip()
        text = text.rstrip(",").strip().strip("*_`")
        if text == before:
            return text
    return text


def readings(text: str, *, gold: bool) -> list[Shape]:
    """Every way to read an answer, the likeliest first. `1,234` is a number, and might be two.

    Raises:
        UnreadableError: there is none; says why.
    """
    return list(_readings(text, gold))


@functools.lru_cache(maxsize=4096)
def _readings(text: str, gold: bool) -> tuple[Shape, ...]:
    if len(text) > MAX_ANSWER:
        raise UnreadableError(f"it has more than {MAX_ANSWER} characters")
    cleaned = clean(text)
    if not cleaned:
        raise UnreadableError("it is empty")
    if gold and cleaned.lower() in _NONE:
        raise UnreadableError("it says that there is no answer")
    plain = re.sub(r"\\(?:text|textbf|mathrm|mathbf|textit|rm|bf|mbox)\s*\{([^{}]*)\}", r" \1 ", cleaned)
    plain = plain.strip("{} \xa0*_`")
    choice = _choice(plain, gold)
    spelled = _respelled(spell(cleaned))
    found: list[Shape] = [] if choice is None else [choice]
    clock = re.fullmatch(r"(\d{1,2})(?::(\d\d))?\s*([ap])\.?\s?m\.?", plain, re.IGNORECASE)
    if clock:
        return (Words(f"{int(clock[1])}:{clock[2] or '00'} {clock[3].lower()}m"),)
    found += filter(None, (_counted(spelled), _in_two_units(spelled)))
    reason = "it is no answer"
    try:
        words = tokens(spelled)
        found.append(shape_of(words))
        if any(word.grouped for word in words):
            found.append(shape_of(tokens(spelled, group=False)))
    except (UnreadableError, RecursionError) as error:
        reason = str(error)
    if not gold:
        decimal = re.fullmatch(r"[€£$]?\s?([-+]?\d+),(\d{1,2}|\d{4,})\s?[€£$]?", spelled)
        if decimal:
            found.append(Value(number(Fraction(f"{decimal[1]}.{decimal[2]}"))))
    glued = re.fullmatch(r"([-+]?[\d.,]*\d)([A-Za-z]{1,3})", spelled)
    if glued and glued[2] in units.GLUED:
        found.append(_glued(glued[1], glued[2]))
    in_words = _words(cleaned, gold)
    if in_words is not None:
        found.append(in_words)
    if not found:
        raise UnreadableError(reason)
    return tuple(found)


def _respelled(text: str) -> str:
    r"""What a whole answer may be beyond its parts: `2 to 3`, `(312)_7`, `]0, 1[`, `{}`, `\text{7 apples}`."""
    if text == "{}":
        return r"\emptyset"
    alone = re.fullmatch(r"\\text\s*\{([^{}]*\d[^{}]*)\}", text)
    text = _OVER.sub(r"\\frac{\1}{\2}", text if alone is None else alone[1].strip())
    text = re.sub(r"^(\d+) to (\d+)$", r"\1:\2", text)
    text = re.sub(r"^\((\d{1,40})\)(?=_)", r"\1", text)
    ends = _OPEN_ENDS.fullmatch(text)
    if ends is not None and (ends[1], ends[3]) != ("[", "]"):
        return f"{'(' if ends[1] == ']' else '['}{ends[2]}{')' if ends[3] == '[' else ']'}"
    return text


def _in_two_units(text: str) -> Value | None:
    """A quantity in a unit and a smaller one of the same kind: `1 hour 30 minutes`."""
    match = _TWO_UNITS.fullmatch(text)
    if match is None:
        return None
    large, small = (units.read_unit([Token("word", word, True)]) for word in (match[2], match[4]))
    if large is None or small is None or large[1] != 1 or small[1] != 1 or not large[0].dimensions:
        return None
    factor = units.compatible(large[0], small[0])
    if factor is None or large[0].dimensions != small[0].dimensions or factor >= 1:
        return None
    return Value(number(Fraction(match[1]) + Fraction(match[3]) * factor), unit=large[0])


def _glued(figures: str, unit: str) -> Value:
    value = shape_of(tokens(figures))
    read = units.read_unit([Token("word", unit, False)])
    if not isinstance(value, Value) or read is None:
        raise UnreadableError("no number stands before the unit")
    return Value(value.node, unit=read[0], sure=False)


def _counted(text: str) -> Value | None:
    """A number in English words, perhaps with a unit: `twenty-one`, `one hundred and five apples`, `two thirds`."""
    words = re.findall(r"[a-z]+", text.lower()) if re.fullmatch(r"[A-Za-z][A-Za-z ,-]{0,80}", text) else []
    if words[:1] in (["minus"], ["negative"]):
        below = _counted(text.lstrip()[len(words[0]) :].strip(" -"))
        return None if below is None else Value(negative(below.node), unit=below.unit)
    part_of = _PART_OF.get(tuple(words[-3:])) if len(words) > 3 else None
    if part_of is not None:
        whole = _counted(" ".join(words[:-3]))
        known = whole is not None and whole.node.value is not None and whole.unit is None
        return Value(number(whole.node.value + part_of)) if known else None  # type: ignore[union-attr,operator]
    if not words or words[0] not in _COUNT:
        return None
    total_, part, used = Fraction(0), Fraction(0), 0
    for i, word in enumerate(words):
        if word in _COUNT:
            if (
                used
                and words[i - 1] in _COUNT
                and not (part % 100 >= 20 and part % 10 == 0 and 0 < _COUNT[word] < 10)
            ):
                return None  # "two three" is no number
            part += _COUNT[word]
        elif word == "hundred" and part:
            part *= 100
        elif word in ("thousand", "million", "billion", "trillion") and part:
            total_, part = total_ + part * units.SCALES[word], Fraction(0)
        elif word == "and" and i + 1 < len(words) and words[i + 1] in _COUNT and words[i - 1] not in _COUNT:
            continue
        else:
            break
        used = i + 1
    behind = [Token("word", word, True) for word in words[used:]]
    read = units.read_unit(behind) if behind else (None, Fraction(1))
    if read is None or any(word in _COUNT or word in ("or", "and") for word in words[used:]):
        return None
    return Value(number((total_ + part) * read[1]), unit=read[0])


def _choice(plain: str, gold: bool) -> Words | Many | None:
    """One choice, with or without its value behind it, or several."""
    match = _CHOICE.fullmatch(plain)
    if match is not None and (match[1].isupper() or plain != match[1] or not gold):
        return Words(match[1].upper())
    if _CHOICES.fullmatch(plain):
        return Many(tuple(Words(letter) for letter in re.findall(r"[A-J]", plain)))
    match = _CHOICE_WITH_VALUE.fullmatch(plain)
    if match is None or re.search(r"\([A-J]\)|\b(?:or|and)\s+\(?[A-J]\b", plain[3:]):
        return None
    return Words(match[1])


def _words(text: str, gold: bool) -> Words | None:
    stated = re.fullmatch(
        r"\\(?:text|textbf|mathrm|mathbf|textit|textrm|operatorname)\s*\{([^{}]*)\}", text.strip()
    )
    plain = " ".join((stated[1] if stated else text).replace("\xa0", " ").split()).strip(" .!*_`\"'")
    low = plain.casefold()
    if low in _PHRASES:
        return Words(_PHRASES[low])
    if not _NAMES.fullmatch(plain) or len(plain) < 2:
        return None
    if gold and (set(low.split()) & _NO_ANSWER or (stated is None and len(low.split()) > 2)):
        return None
    return Words(low)
