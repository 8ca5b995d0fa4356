"""Numbers in text, read as exact rationals by a grammar. Nothing is ever evaluated as code.

Reading is linear in the length of the text: no part of a pattern can match the same characters in two ways, and
numbers of more than `MAX_DIGITS` digits are not read.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

MAX_DIGITS = 1000
"""Longest number read, and longest result of a power."""
MAX_EXPONENT = 400
"""Largest power of ten read, either way."""

_NBSP = "\u00a0"


class _Plain(dict[int, str | None]):
    """Code point to what it is read as. Digits of every script become ASCII; superscripts stay what they are."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        digit = unicodedata.decimal(character, None)
        plain: str | None = character if digit is None else str(digit)
        if digit is None and 0x1D400 <= code < 0x1D7CE:
            plain = unicodedata.normalize("NFKC", character)  # bold, italic and the like
        if unicodedata.category(character) == "Cf":
            plain = None  # zero-width spaces, direction marks, soft hyphens
        self[code] = plain
        return plain


_PLAIN = _Plain(
    {ord(c): "-" for c in "\u2212\u2012\u2796\u2013\u2010\u2011\ufe63\uff0d"}
    | {ord(c): _NBSP for c in "\u202f\u2007\u2008\u2009\u066c"}
    | {ord(c): "'" for c in "\u2019"}
    | {ord("\u3000"): " ", ord("\u3002"): ".", ord("\u066b"): ".", ord("\u2044"): "/", ord("\u2217"): "*"}
    | {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F) if code != 0xFF0D}  # full-width ASCII
)
_LATEX = ((r"\!", ""), ("{,}", ","), (r"\,", _NBSP), (r"\%", "%"), (r"\$", "$"))

_VULGAR = {
    chr(code): Fraction(unicodedata.normalize("NFKC", chr(code)).replace("\u2044", "/"))
    for code in [*range(0xBC, 0xBF), *range(0x2150, 0x215F), 0x2189]
}
_RAISED = {c: str(i) for i, c in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")} | {"⁻": "-", "⁺": "+"}


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it was written."""

    value: Fraction
    """What the figures say: 35 for `35%`."""
    percent: bool
    """True when a percent sign or the word follows."""


# Digits with single marks between them are one run, and a run either fits `_RUN` as a whole or is no number: so
# `1.2.3`, `3-5`, `5:18` and `7,5` are not taken for their last digits.
_NUMBER = re.compile(
    r"""
    (?P<sign>(?<![0-9A-Za-z)\]}%])[-+])?  (?:[$€£¥₹][\ \xa0]?)?(?P<sign_after>(?<=[$€£¥₹])[-+])?
    (?:
      \\[dtc]?frac (?: \{(?P<over>[^{}\n]{0,60})\}\{(?P<under>[^{}\n]{0,60})\} | (?P<over_1>\d)(?P<under_1>\d)
                     | (?P<odd_fraction>[^$\n]{0,200}) )
    | (?P<root> (?:\\sqrt|\\overline|√)(?:\[\d{0,4}\])?\{?[^{}\s$]{0,60} )
    | (?<![A-Za-z0-9^√]) (?<!\^\{) (?<![A-Za-z0-9}]_) (?<!_\{) (?<!\d[.,:/'_\-\xa0])
      (?: (?P<run> (?:(?<![.])\.)?+ \d (?:[.,:/'_\-\xa0]?\d)*+ )
          (?:[eE](?P<e>[-+]?\d++)(?![A-Za-z]))?
          (?: [\ \xa0]?\\[dtc]?frac\{(?P<mixed_over>\d{1,6})\}\{(?P<mixed_under>\d{1,6})\}
            | [\ \xa0](?P<over_2>\d{1,4})/(?P<under_2>\d{1,4})(?![/\d])
            | [\ \xa0]?(?P<vulgar>[VULGAR]) )?
          (?: (?P<raised>[RAISED]+)
            | \^ (?: \{?\\circ | \{(?P<power_in>\d{1,4})\}(?!\^) | (?P<power>\d{1,4})(?![\d.^]) | (?P<odd_power>) ) )?
          (?: \ ?(?:×|\\times|\*|x|·|\\cdot)\ ?10(?: \^\{?(?P<ten>[-+]?\d{1,4})\}? | (?P<ten_raised>[RAISED]+) ) )?
      | (?P<vulgar_alone>[VULGAR]) )
    )
    (?P<symbol>\ ?(?:π|\\pi(?![a-z])))?
    (?P<percent>[\ \xa0]?%|[\ \xa0]per[\ \xa0]?cent\b)?
    """.replace("VULGAR", "".join(_VULGAR)).replace("RAISED", "".join(_RAISED)),
    re.VERBOSE,
)
_RUN = re.compile(
    r"""
    (?P<whole> \d+ | [1-9]\d{0,2}(?P<mark>[,'_\xa0])\d{3}(?:(?P=mark)\d{3})* | [1-9]\d?(?:,\d\d)+,\d{3} )?
    (?P<decimals>\.\d+)?
    | (?P<first>\d+)\xa0(?P<over_3>\d+)/(?P<under_3>\d+) | (?P<over_4>\d+)/(?P<under_4>\d+)
    """,
    re.VERBOSE,
)
_SPACED = re.compile(
    r"(?P<before>[^\w]*)(?P<number>[1-9]\d{0,2}(?: \d{3})+(?:\.\d+)?)(?P<after>(?![\d,.]\d)\D*)"
)
_RELATED = re.compile(r"[<>≤≥≠±+]|(?<!\\)[()]|\\(?:pm|[lg]eq?|neq?)(?![a-z])")


def characters(text: str) -> str:
    """The text with other scripts' digits, minus signs and spaces in ASCII, and without what cannot be seen.

    Spaces that do not break become U+00A0. Superscripts and vulgar fractions stay what they are.
    """
    return text if text.isascii() else text.translate(_PLAIN)


def plain(text: str) -> str:
    """The text with other scripts' digits, minus signs, spaces and LaTeX's spacing spelled in ASCII."""
    text = characters(text)
    if "\\" in text or "{," in text:
        for written, meant in _LATEX:
            text = text.replace(written, meant)
    return text


def number_at(text: str, start: int) -> tuple[Number | None, int] | None:
    """The number that begins at `start` of plain text and where it ends; None when none begins there.

    The number is None when something begins there that looks like one and is none, such as `1.2.3`.
    """
    match = _NUMBER.match(text, start)
    return None if match is None else (_read(match), match.end())


def last_number(text: str) -> Number | None:
    """The last number of plain text; None when there is none, or the last is not readable as one."""
    spaced = _spaced(text)
    last = None
    for match in _NUMBER.finditer(spaced):
        last = match
    return None if last is None else _read(last)


def only_number(text: str) -> Number | None:
    """The number of plain text that states one and nothing else but words: `x = 5`, `$72`, `60 km/h`.

    None when it holds no number, or several, or relates it to something: `x > 5`, `u + v = 6`, `± 2`, `f(2)`.
    """
    text = _spaced(text)
    found = _NUMBER.finditer(text)
    first = next(found, None)
    if first is None or next(found, None) is not None:
        return None
    before, after = text[: first.start()].strip(), text[first.end() :].strip()
    if before[:1] == "(" and after[-1:] == ")":
        before, after = before[1:], after[:-1]
    return None if _RELATED.search(before) or _RELATED.search(after) else _read(first)


def _spaced(text: str) -> str:
    """A text that is one number grouped by spaces, `1 000 000`, with the spaces made unbreakable.

    Only there: inside a sentence two numbers may stand side by side.
    """
    if len(text) > 100:
        return text
    match = _SPACED.fullmatch(text.strip())
    if match is None:
        return text
    return match["before"] + match["number"].replace(" ", _NBSP) + match["after"]


def _read(match: re.Match[str]) -> Number | None:
    if any(match[name] is not None for name in ("odd_fraction", "root", "odd_power", "symbol")):
        return None
    try:
        value = _magnitude(match)
    except ValueError:
        return None
    if "-" in (match["sign"], match["sign_after"]):
        value = -value
    return Number(value, match["percent"] is not None)


def _magnitude(match: re.Match[str]) -> Fraction:
    """The number without its sign. Raises ValueError where the parts do not make one."""
    if match["vulgar_alone"]:
        return _VULGAR[match["vulgar_alone"]]
    if match["run"] is None:
        return _ratio(match["over"] or match["over_1"], match["under"] or match["under_1"])
    value = _run(match["run"])
    over = match["mixed_over"] or match["over_2"]
    if match["vulgar"]:
        value = _mixed(value, _VULGAR[match["vulgar"]])
    elif over is not None:
        value = _mixed(value, _ratio(over, match["mixed_under"] or match["under_2"]))
    power = match["raised"] or match["power_in"] or match["power"]
    if power is not None:
        exponent = _exponent(power, MAX_DIGITS)
        if exponent < 0 or exponent * len(str(max(value.numerator, value.denominator))) > MAX_DIGITS:
            raise ValueError
        value = value**exponent
    for ten in (match["e"], match["ten"] or match["ten_raised"]):
        if ten is not None:
            value *= Fraction(10) ** _exponent(ten, MAX_EXPONENT)
    return value


def _exponent(text: str, limit: int) -> int:
    figures = "".join(_RAISED.get(c, c) for c in text)
    if len(figures) > 5 or abs(int(figures)) > limit:
        raise ValueError
    return int(figures)


def _run(text: str) -> Fraction:
    match = _RUN.fullmatch(text) if len(text) <= MAX_DIGITS else None
    if match is None:
        raise ValueError
    if match["over_4"] is not None:
        return _ratio(match["over_4"], match["under_4"])
    if match["over_3"] is not None:
        return _mixed(Fraction(match["first"]), _ratio(match["over_3"], match["under_3"]))
    whole = re.sub(r"[,'_\xa0]", "", match["whole"] or "0")
    return Fraction(whole + (match["decimals"] or ""))


def _mixed(whole: Fraction, part: Fraction) -> Fraction:
    if whole.denominator != 1 or not 0 <= part < 1:
        raise ValueError
    return whole + part


def _ratio(over: str, under: str) -> Fraction:
    """A fraction from its two halves, signs included."""
    if len(over) > MAX_DIGITS or len(under) > MAX_DIGITS or int(under) == 0:
        raise ValueError
    return Fraction(int(over), int(under))
