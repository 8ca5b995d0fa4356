"""Every way to read a text as an answer: the likeliest shape first, then what else it may mean."""

from __future__ import annotations

import contextlib
import functools
import re
from fractions import Fraction

from groupwise.rewards.mathematics import units
from groupwise.rewards.mathematics.expressions import read_expression
from groupwise.rewards.mathematics.forms import both_bounds
from groupwise.rewards.mathematics.moments import moments
from groupwise.rewards.mathematics.nodes import UnreadableError, based, negative, number, product
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
_HALVES = frozenset({("half",), ("a", "half"), ("one", "half")})
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
_OVER = re.compile(r"\{([^{}\\]{1,100})\\(over|choose)(?![a-z])([^{}\\]{1,100})\}")
_BARE_OVER = re.compile(r"([^{}\\,;=]{1,100})\\(over|choose)(?![a-z])([^{}\\,;=]{1,100})")
_OPEN_ENDS = re.compile(r"([\[\]])([^\[\]]+,[^\[\]]+)([\[\]])")
_TWO_UNITS = re.compile(
    r"(\d{1,9}(?:\.\d{1,9})?) ?([a-z]{1,12})\.?(?:(?:,? and|,)? )?(\d{1,9}(?:\.\d{1,9})?) ?([a-z]{1,12})\.?",
    re.I,
)
_ARC = re.compile(
    r"(-?)(\d{1,9})\^\\circ\s*(\d{1,2}(?:\.\d{1,9})?)'(?!')(?:\s*(\d{1,2}(?:\.\d{1,9})?)''|\s*)"
)
_DECIMAL_COMMA = re.compile(
    r"((?:[€£$]\s?)?[-+]?)(0,\d{1,30}|\d{1,30},(?:\d{1,2}|\d{4,30}))((?!\d)[^\d,;]{0,40})"
)
_LARGE = {
    "k": 10**3,
    "K": 10**3,
    "M": 10**6,
    "mil": 10**6,
    "mn": 10**6,
    "mio": 10**6,
    "B": 10**9,
    "bn": 10**9,
}
_SCALED = re.compile(rf"((?:[€£$]\s?)?[-+]?\d[\d.,]{{0,30}})\s?({'|'.join(_LARGE)})\.?(\s[A-Za-z]{{2,20}})?")
_DOZENS = re.compile(r"([^\s].{0,30}?) dozens?(?: (?:of )?[a-z ]{1,30})?", re.IGNORECASE)
_FOR_ALL = re.compile(
    r"(?:[,;]\s*|\s+(?=\())(?:\\text\s?\{[^{}]{0,20}\}\s*)?\(?\b[a-z]\s*\\in\s*(?:\\mathbb\s?\{?\s?)[ZNRQ]\s?\}?\)?$"
)
_ASIDE = re.compile(
    r"(?<=\d)\s\((?!or\b|not\b|base\b|mod\b|wrong|incorrect|maybe|perhaps)[A-Za-z -]{2,40}\)$"
)
_NAMED = re.compile(
    r"^(?:the\s)?(?:final\s|correct\s)?(?:answer|ans|result)(?:\sis)?\s?[:=]?\s(?=\S)", re.IGNORECASE
)
_BASE = {"two": "2", "three": "3", "five": "5", "eight": "8", "ten": "10", "sixteen": "16"}
_IN_BASE = re.compile(
    r"\(?([0-9A-Za-z]{1,60})\)?\s*(?:_\s*\{?\s*(?:\\text\s?\{\s*)?|,?\s\(?(?:in\s)?base[\s-])(\d{1,2}|[a-z]{3,7})[\s})]*"
)
_BEHIND_CHINESE = re.compile(
    r"(?<=\d)\s?(?!.*[\u5341\u767e\u5343\u4e07\u842c\u4ebf\u5104])[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3]{1,20}$"
)
_ALL_BUT = re.compile(
    r"(?:all\s)?real\snumbers\s(?:except|other\sthan|but)\s(?:for\s)?(?:x\s*(?:=|\\ne)\s*)?([^A-Za-z]{1,60}(?:(?:and|or)[^A-Za-z]{1,20})?)",
    re.IGNORECASE,
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
    cleaned = clean(text) if gold else _BEHIND_CHINESE.sub("", clean(text))
    if not cleaned:
        raise UnreadableError("it is empty")
    if gold and cleaned.lower() in _NONE:
        raise UnreadableError("it says that there is no answer")
    plain = re.sub(r"\\(?:text|textbf|mathrm|mathbf|textit|rm|bf|mbox)\s*\{([^{}]*)\}", r" \1 ", cleaned)
    plain = plain.strip("{} \xa0*_`")
    choice = _choice(plain, gold)
    spelled = _respelled(spell(cleaned))
    found: list[Shape] = [] if choice is None else [choice]
    times = tuple(Words(moment) for moment in moments(" ".join(plain.split()), gold=gold))
    if times and not re.fullmatch(r"\d+:\d+", plain):
        return times
    found += [
        *times,
        *filter(None, (_counted(plain), _in_two_units(plain), _in_base(spelled), _arc(spelled))),
    ]
    reason = "it is no answer"
    try:
        words = tokens(spelled)
        shape = shape_of(words)
        found.append(shape)
        bounds = both_bounds(shape)
        if bounds is not None:
            found.append(bounds)
        if any(word.grouped for word in words):
            found.append(shape_of(tokens(spelled, group=False)))
    except (UnreadableError, RecursionError) as error:
        reason = str(error)
    if not gold:
        found += _as_people_write(spelled)
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
    text = _OVER.sub(_divided, text if alone is None else alone[1].strip())
    text = _NAMED.sub("", _ASIDE.sub("", _FOR_ALL.sub("", text)))
    text = re.sub(r"^([(\[].*[)\]])\s?\^\s?\{?\s?(?:T|\\top|\\intercal)\s?\}?$", r"\1", text)  # a column
    bare = _BARE_OVER.fullmatch(text)
    text = text if bare is None else _divided(bare)
    text = re.sub(r"^(\d+) to (\d+)$", r"\1:\2", text)
    text = re.sub(r"^(\d+) (?:out of|in)(?: every)? (\d+)$", r"\\frac{\1}{\2}", text)
    except_ = _ALL_BUT.fullmatch(text)
    if except_ is not None:
        points = re.sub(r"and|or", ",", except_[1])
        return rf"\mathbb{{R}} \setminus \{{ {points} \}}"
    text = re.sub(r"^\((\d{1,40})\)(?=_)", r"\1", text)
    ends = _OPEN_ENDS.fullmatch(text)
    if ends is not None and (ends[1], ends[3]) != ("[", "]"):
        return f"{'(' if ends[1] == ']' else '['}{ends[2]}{')' if ends[3] == '[' else ']'}"
    return text


def _divided(match: re.Match[str]) -> str:
    return rf"\{'frac' if match[2] == 'over' else 'binom'}{{{match[1]}}}{{{match[3]}}}"


def _as_people_write(text: str) -> list[Shape]:
    """Readings that an answer is given and a gold is not: a decimal comma, `1.5k`, `1 and 1/2`."""
    found: list[Shape] = []
    dozens = _DOZENS.fullmatch(text)
    if dozens is not None:
        many = number(1) if dozens[1].lower() in ("a", "one") else getattr(_counted(dozens[1]), "node", None)
        with contextlib.suppress(UnreadableError):
            many = read_expression(tokens(dozens[1])) if many is None else many
        if many is not None:
            found.append(Value(product(many, number(12))))
    with contextlib.suppress(UnreadableError, RecursionError):
        comma = _DECIMAL_COMMA.fullmatch(text)
        if comma is not None:
            found.append(shape_of(tokens(comma[1] + comma[2].replace(",", ".") + comma[3])))
        mixed = re.fullmatch(r"(-?\d{1,9}) and (\d{1,9}/\d{1,9})(\D.{0,40})?", text)
        if mixed is not None:
            found.append(shape_of(tokens(f"{mixed[1]} {mixed[2]}{mixed[3] or ''}")))
        scaled = _SCALED.fullmatch(text)
        value = shape_of(tokens(scaled[1] + (scaled[3] or ""))) if scaled is not None else None
        if scaled is not None and isinstance(value, Value):
            found.append(Value(product(value.node, number(_LARGE[scaled[2]])), unit=value.unit))
    return found


def _in_base(text: str) -> Value | None:
    """A number in a base: `2A_{16}`, `1011_{\\text{two}}`, `1011 (base 2)`; its digits must be of the base."""
    match = _IN_BASE.fullmatch(text)
    base = "" if match is None else _BASE.get(match[2], match[2])
    if match is None or not base.isdigit() or not 2 <= int(base) <= 36:
        return None
    digits = match[1].upper()
    if not digits[0].isdigit() or any(int(digit, 36) >= int(base) for digit in digits):
        return None
    return Value(based(digits, base))


def _arc(text: str) -> Value | None:
    """An angle in degrees, minutes and seconds."""
    match = _ARC.fullmatch(text)
    if match is None:
        return None
    size = Fraction(match[2]) + Fraction(match[3]) / 60 + Fraction(match[4] or 0) / 3600
    degree = units.read_unit([Token("word", "degree", True)])
    return Value(number(-size if match[1] else size), unit=None if degree is None else degree[0])


def _in_two_units(text: str) -> Value | None:
    """A quantity in a unit and a smaller one of the same kind: `1 hour 30 minutes`."""
    match = _TWO_UNITS.fullmatch(text)
    if match is None:
        return None
    names = (match[2], "min" if match[4] == "m" and match[2].lower() in ("h", "hr", "hrs") else match[4])
    large, small = (units.read_unit([Token("word", word, True)]) for word in names)
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
    if words and tuple(words) in _HALVES:
        return Value(number(Fraction(1, 2)))
    if words[:1] == ["a"] and words[1:2] and words[1] in ("hundred", "thousand", "million", "billion"):
        words = ["one", *words[1:]]
    point = words.index("point") if "point" in words[1:-1] else 0
    if point:
        whole, digits = (
            _counted(" ".join(words[:point])),
            [_COUNT.get(word, Fraction(-1)) for word in words[point + 1 :]],
        )
        if whole is None or whole.unit is not None or not all(0 <= digit <= 9 for digit in digits):
            return None
        figures = "".join(str(int(digit)) for digit in digits)
        return Value(number((whole.node.value or 0) + Fraction(int(figures), 10 ** len(figures))))
    part_of = _PART_OF.get(tuple(words[-3:])) if len(words) > 3 else None
    if part_of is not None:
        whole = _counted(" ".join(words[:-3]))
        known = whole is not None and whole.node.value is not None and whole.unit is None
        return Value(number(whole.node.value + part_of)) if known else None  # type: ignore[union-attr,operator]
    if len(words) > 1 and (words[-1] == "percent" or words[-2:] == ["per", "cent"]):
        shares = _counted(" ".join(words[: -1 if words[-1] == "percent" else -2]))
        return None if shares is None or shares.unit is not None else Value(shares.node, percent=True)
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
