"""What stands behind a number: units that are compared and converted, words that scale it, and nouns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from groupwise.rewards.mathematics.tokens import Token
from groupwise.rewards.mathematics.vocabulary import vocabulary

SCALES = {
    "hundred": Fraction(100),
    "thousand": Fraction(1000),
    "million": Fraction(10**6),
    "billion": Fraction(10**9),
    "trillion": Fraction(10**12),
    "tenth": Fraction(1, 10),
    "hundredth": Fraction(1, 100),
    "thousandth": Fraction(1, 1000),
    "millionth": Fraction(1, 10**6),
    "half": Fraction(1, 2),
    "third": Fraction(1, 3),
    "quarter": Fraction(1, 4),
    "fourth": Fraction(1, 4),
    "fifth": Fraction(1, 5),
    "sixth": Fraction(1, 6),
    "seventh": Fraction(1, 7),
    "eighth": Fraction(1, 8),
    "ninth": Fraction(1, 9),
    "eleventh": Fraction(1, 11),
    "twelfth": Fraction(1, 12),
    "\u767e": Fraction(100),
    "\u5343": Fraction(1000),
    "\u4e07": Fraction(10**4),
    "\u842c": Fraction(10**4),
    "\u4ebf": Fraction(10**8),
    "\u5104": Fraction(10**8),
}
"""Words behind a number that are part of it, in the singular; the last are Chinese for 100 to 10^8."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit or a noun behind a number."""

    factor: Fraction = Fraction(1)
    """How much one of it is in base units."""
    dimensions: tuple[tuple[str, int], ...] = ()
    """Base dimensions with their powers, sorted; empty for nouns."""
    nouns: frozenset[str] = frozenset()
    """Words that are no unit, in the singular."""

    @property
    def is_measure(self) -> bool:
        """True for a unit that is known."""
        return bool(self.dimensions)


_INCH, _POUND, _GALLON = Fraction(254, 10**4), Fraction(45359237, 10**5), 231 * Fraction(254, 10**4) ** 3
_MEASURES: tuple[tuple[str, int, dict[str, Fraction | int]], ...] = (
    (
        "length",
        1,
        {
            "m meter metre": 1,
            "km kilometer kilometre": 1000,
            "dm decimeter decimetre": Fraction(1, 10),
            "cm centimeter centimetre": Fraction(1, 100),
            "mm millimeter millimetre": Fraction(1, 1000),
            "\u03bcm um micrometer micrometre micron": Fraction(1, 10**6),
            "nm nanometer nanometre": Fraction(1, 10**9),
            "in inch inches": _INCH,
            "ft foot feet": 12 * _INCH,
            "yd yard": 36 * _INCH,
            "mi mile": 63360 * _INCH,
        },
    ),
    ("length", 2, {"acre": 4840 * (36 * _INCH) ** 2, "hectare ha": 10**4}),
    (
        "length",
        3,
        {
            "l liter litre": Fraction(1, 1000),
            "ml milliliter millilitre cc": Fraction(1, 10**6),
            "cl centiliter centilitre": Fraction(1, 10**5),
            "dl deciliter decilitre": Fraction(1, 10**4),
            "gal gallon": _GALLON,
            "qt quart": _GALLON / 4,
            "pt pint": _GALLON / 8,
            "cup": _GALLON / 16,
            "tbsp tablespoon": _GALLON / 256,
            "tsp teaspoon": _GALLON / 768,
        },
    ),
    (
        "mass",
        1,
        {
            "g gram gramme gm": 1,
            "kg kilogram kilo": 1000,
            "mg milligram": Fraction(1, 1000),
            "tonne": 10**6,
            "lb pound": _POUND,
            "oz ounce": _POUND / 16,
        },
    ),
    (
        "time",
        1,
        {
            "s sec second": 1,
            "ms millisecond": Fraction(1, 1000),
            "min minute": 60,
            "h hr hour": 3600,
            "day": 86400,
            "week wk": 7 * 86400,
        },
    ),
    ("years", 1, {"year yr": 12, "month": 1, "decade": 120, "century": 1200}),
    ("angle", 1, {"degree deg": 1}),
    ("radian", 1, {"rad radian": 1}),
    ("celsius", 1, {"celsius": 1}),
    ("fahrenheit", 1, {"fahrenheit": 1}),
    ("kelvin", 1, {"kelvin": 1}),
    ("dollar", 1, {"$ dollar usd buck": 1, "cent \u00a2 penny pence pennies": Fraction(1, 100)}),
    ("euro", 1, {"\u20ac euro eur": 1}),
    ("sterling", 1, {"\u00a3 gbp": 1}),
    ("yen", 1, {"\u00a5 yen jpy": 1}),
    ("rupee", 1, {"\u20b9 rupee rs inr": 1}),
    ("energy", 1, {"j joule": 1, "kj kilojoule": 1000}),
    ("power", 1, {"w watt": 1, "kw kilowatt": 1000}),
    ("force", 1, {"n newton": 1}),
    ("voltage", 1, {"v volt": 1}),
    ("current", 1, {"ampere amp": 1}),
    ("frequency", 1, {"hz hertz": 1, "khz kilohertz": 1000}),
    ("data", 1, {"byte": 1, "kb kilobyte": 1000, "mb megabyte": 10**6, "gb gigabyte": 10**9}),
)
_TABLE = {
    name: (Fraction(factor), dimension, exponent)
    for dimension, exponent, names in _MEASURES
    for spelled, factor in names.items()
    for name in spelled.split()
}
_SPEEDS = {
    "mph": (Fraction(63360 * 254, 10**4 * 3600), (("length", 1), ("time", -1))),
    "kph": (Fraction(1000, 3600), (("length", 1), ("time", -1))),
    "kmh": (Fraction(1000, 3600), (("length", 1), ("time", -1))),
}
CURRENCY = "$\u20ac\u00a3\u00a5\u20b9\u00a2"
"""Signs of currencies."""
_NEUTRAL = vocabulary(
    "unit of the a an in total altogether each every and more left all now overall only exactly away long "
    "wide tall high old later ago worth extra remaining additional different other whole"
)
_STOP = vocabulary(
    "because since as so which where when if but not who for after before by from with while thus "
    "therefore hence that than this these is are was were has have had will would can could to at on i we "
    "he she it they you there then or rounded approximately about respectively per"
)
_DENIALS = frozenset({"or", "not", "wrong", "incorrect", "false"})
GLUED = vocabulary("m g s h l km cm mm kg mg ml hr min ft in lb oz mi yd mph kph mm dm sec")
"""Units that are written right behind a number, `3h`."""
_PLURALS = {
    "people": "person",
    "men": "man",
    "women": "woman",
    "children": "child",
    "mice": "mouse",
    "geese": "goose",
    "teeth": "tooth",
    "leaves": "leaf",
    "loaves": "loaf",
    "shelves": "shelf",
    "knives": "knife",
    "halves": "half",
}
MAX_WORDS = 6
"""Words behind a number that are looked at."""


_ANGLE, _CELSIUS, _FAHRENHEIT = (("angle", 1),), (("celsius", 1),), (("fahrenheit", 1),)


def is_unit(word: str) -> bool:
    """True for the name or the abbreviation of a unit that is known."""
    return _known(word) is not None


def read_unit(words: Sequence[Token]) -> tuple[Unit, Fraction] | None:
    r"""The unit that some words make, and what they scale the number by: `million dollars`, `\text{ cm}^2`, `km/h`.

    None when they are no unit and no nouns, so that what stands before them cannot be a number with a unit.
    """
    pieces = _pieces(words)
    if pieces is None:
        return None
    if any(piece.lower() in _DENIALS for piece in pieces):
        return None
    factor, scale = Fraction(1), Fraction(1)
    dimensions: dict[str, int] = {}
    nouns: set[str] = set()
    sign, square = 1, 1
    i = 0
    while i < len(pieces) and i < 3 * MAX_WORDS:
        piece = pieces[i]
        i += 1
        if piece in ("/", "per") and (dimensions or nouns or scale == 1):
            sign = -1
            continue
        if piece in ("*", "-", "."):
            continue
        low = piece.lower()
        if low in ("square", "sq", "cubic", "cu"):
            square = 2 if low[0] == "s" else 3
            continue
        exponent = 1
        if i + 1 < len(pieces) and pieces[i] == "^" and re.fullmatch(r"-?\d", pieces[i + 1]):
            exponent = int(pieces[i + 1])
            i += 2
        elif low in ("squared", "cubed"):
            if not dimensions:
                return None  # `18 squared` is a power
            continue
        elif i < len(pieces) and pieces[i] in ("squared", "cubed"):
            exponent = 2 if pieces[i] == "squared" else 3
        if low in _STOP:
            break
        known = _known(piece)
        if known is not None and not (piece == "in" and pieces[i : i + 1] and pieces[i].isalpha()):
            power = sign * square * exponent
            factor *= known[0] ** power
            for name, times in known[1]:
                dimensions[name] = dimensions.get(name, 0) + times * power
            sign, square = 1, 1
            continue
        one = _singular(low)
        if one in SCALES and not dimensions and not nouns:
            scale *= SCALES[one]
            continue
        if not piece.isalpha():
            return None
        if one not in _NEUTRAL:
            nouns.add(one)
        sign, square = 1, 1
    kept = tuple(sorted((name, times) for name, times in dimensions.items() if times))
    return Unit(factor if kept else Fraction(1), kept, frozenset(nouns)), scale


def _pieces(words: Sequence[Token]) -> list[str] | None:
    """The words, texts taken apart, as plain strings; None when one of them cannot be part of a unit."""
    pieces: list[str] = []
    for word in words:
        if word.kind == "text":
            pieces += re.findall(r"[A-Za-z\u03bc]+|\d+|[/^.*$%-]", word.text)
        elif word.kind == "word":
            pieces.append(word.text)
        elif word.kind == "number":
            if not pieces or pieces[-1] not in ("^", "-"):
                return None
            pieces.append(word.text)
        elif word.kind == "command" and word.text in ("cdot", "circ"):
            pieces.append("*" if word.text == "cdot" else "degree")
        elif word.kind == "sign" and word.text in "/^-.*{}()" + CURRENCY:
            if word.text not in "{}()":
                pieces.append(word.text)
        else:
            return None
    joined = [p for i, p in enumerate(pieces) if not (p == "^" and pieces[i + 1 : i + 2] == ["degree"])]
    merged: list[str] = []
    for piece in joined:
        if merged and merged[-1] == "-" and piece.isdigit():
            merged[-1] = "-" + piece
        elif (
            merged
            and merged[-1] in ("degree", "degrees")
            and piece in ("C", "F", "Celsius", "Fahrenheit", "celsius", "fahrenheit")
        ):
            merged[-1] = "celsius" if piece[0] in "Cc" else "fahrenheit"
        else:
            merged.append(piece)
    return merged


def _known(word: str) -> tuple[Fraction, tuple[tuple[str, int], ...]] | None:
    low = word.lower()
    if word == "M":
        return None  # a million, if anything
    if low in _SPEEDS:
        return _SPEEDS[low]
    for name in (low, _singular(low)):
        if name in _TABLE:
            factor, dimension, exponent = _TABLE[name]
            return factor, ((dimension, exponent),)
    return None


def _singular(word: str) -> str:
    """The singular of an English noun, by its ending."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if word in _PLURALS:
        return _PLURALS[word]
    if len(word) > 4 and word.endswith(("ches", "shes", "xes", "sses")):
        return word[:-2]
    if len(word) > 2 and word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return word


def currency(sign: str) -> Unit | None:
    """The unit of a currency sign before a number."""
    known = _known(sign) if sign in CURRENCY else None
    return None if known is None else Unit(known[0], known[1])


CENTS = Unit(Fraction(1, 100), (("dollar", 1),))
"""A hundredth of a dollar, of which the data may leave the unit out."""


def compatible(gold: Unit | None, answer: Unit | None) -> Fraction | None:
    """By what the answer's number is multiplied to be in the gold's unit; None where they cannot be compared.

    A unit that only one of them states is taken for the other's as well.
    """
    if gold is None or answer is None or not (gold.dimensions or gold.nouns):
        return Fraction(1)
    if not (answer.dimensions or answer.nouns):
        return Fraction(1)
    degrees = {gold.dimensions, answer.dimensions}
    if len(degrees) == 2 and degrees in ({_ANGLE, _CELSIUS}, {_ANGLE, _FAHRENHEIT}):
        return Fraction(1)  # `25 degrees` of a temperature
    if gold.is_measure or answer.is_measure:
        return answer.factor / gold.factor if gold.dimensions == answer.dimensions else None
    return Fraction(1) if gold.nouns & answer.nouns else None
