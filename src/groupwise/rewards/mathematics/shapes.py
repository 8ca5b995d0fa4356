r"""What kind of answer a text is: a value, a pair, an interval, a set, a matrix, a relation, words.

"24 cm"            Value(24, unit cm)          "(0, 1]"           Group("(", 0, 1, "]")
"{1, 2}", "1 or 2" Many(1, 2)                  "x = 3, y = 4"     Many(Relation, Relation)
"x \le 5"          Relation(x, 5; \le)         "5:18"             Ratio(5, 18)
"\pm 2"            Many(-2, 2)                 "yes", "(C)"       Words
"""

from __future__ import annotations

from dataclasses import dataclass

from groupwise.rewards.mathematics import units
from groupwise.rewards.mathematics.nodes import Node


@dataclass(frozen=True, slots=True)
class Value:
    """A number or an expression, perhaps with a unit."""

    node: Node
    percent: bool = False
    """True when a percent sign or the word follows; `node` is what the figures say."""
    unit: units.Unit | None = None
    sure: bool = True
    """False for a unit written like a variable: `3h`."""


@dataclass(frozen=True, slots=True)
class Group:
    """Values in order within brackets: a pair, a vector or an interval."""

    opening: str
    items: tuple[Shape, ...]
    closing: str


@dataclass(frozen=True, slots=True)
class Many:
    """Several values of which the order does not count: a set, or answers side by side."""

    items: tuple[Shape, ...]
    braces: bool = False
    """True for a set in braces."""


@dataclass(frozen=True, slots=True)
class Union:
    """Intervals and sets together."""

    parts: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Relation:
    r"""Sides and what stands between them: `=`, `<`, `>`, `\le`, `\ge`, `\ne`, `\approx`."""

    sides: tuple[Shape, ...]
    signs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Values by colons."""

    items: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Values in rows."""

    rows: tuple[tuple[Shape, ...], ...]


@dataclass(frozen=True, slots=True)
class Words:
    """An answer in words, in lower case and with single spaces; one capital letter for a choice."""

    text: str


Shape = Value | Group | Many | Union | Relation | Ratio | Matrix | Words
