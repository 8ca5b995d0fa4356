r"""What kind of answer a text is: a value, a pair, an interval, a set, a matrix, a relation, words.

    "24 cm"            Value(24, unit cm)          "(0, 1]"           Group("(", 0, 1, "]")
    "{1, 2}", "1 or 2" Many(1, 2)                  "x = 3, y = 4"     Many(Relation, Relation)
    "x \le 5"          Relation(x, 5; \le)         "5:18"             Ratio(5, 18)
    "\pm 2"            Many(-2, 2)                 "yes", "(C)"       Words
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from groupwise.rewards.mathematics import units
from groupwise.rewards.mathematics.expressions import FUNCTIONS, is_letters, read_expression
from groupwise.rewards.mathematics.nodes import Node, Unreadable, constant, negative, number, product
from groupwise.rewards.mathematics.spelling import spell
from groupwise.rewards.mathematics.tokens import Token, tokens

MAX_ANSWER = 1000
"""Longest answer, in characters, that is read."""
MAX_ITEMS = 50
"""Most values that an answer may list."""


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

SIGNS = {"=": "=", "<": "<", ">": ">"}
_SIGN_COMMANDS = {"le": r"\le", "ge": r"\ge", "ne": r"\ne", "approx": r"\approx", "equiv": "=", "<": "<", ">": ">"}
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_CHOICE = re.compile(r"(?:(?:option|choice|answer)\s+)?\(?\s*([A-Ja-j])\s*(?:\)|\.|:|\)\s*[.:])?", re.IGNORECASE)
_CHOICE_WITH_VALUE = re.compile(r"\(?([A-J])\s*[).:]\s*\S.{0,200}", re.DOTALL)
_NAMES = re.compile(r"[^\W\d_][\w'.-]*(?: [^\W\d_][\w'.-]*){0,3}")
_NO_ANSWER = frozenset(
    "see figure graph diagram picture table proof prove above below vary varies answer answers solution n/a na unknown "
    "nan null tbd todo missing blank none omitted unavailable text error undefined? the of to and in explanation".split()
)
_NONE = frozenset({"n/a", "na", "n.a", "none", "null", "nan", "?", "-", "tbd", "unknown"})
_COUNT = {
    word: Fraction(i)
    for i, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
        "eighteen nineteen".split()
    )
} | {
    word: Fraction(10 * i)
    for i, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), start=2)
}
_PHRASES = {
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


def clean(text: str) -> str:
    """A text without what stands around an answer: white space, markdown, dollar signs in pairs, closing marks."""
    text = text.strip().strip("*_` \t\n\xa0")
    while True:
        before = text
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
        Unreadable: there is none; says why.
    """
    return list(_readings(text, gold))


@functools.lru_cache(maxsize=4096)
def _readings(text: str, gold: bool) -> tuple[Shape, ...]:
    if len(text) > MAX_ANSWER:
        raise Unreadable(f"it has more than {MAX_ANSWER} characters")
    cleaned = clean(text)
    if not cleaned:
        raise Unreadable("it is empty")
    if gold and cleaned.lower() in _NONE:
        raise Unreadable("it says that there is no answer")
    choice = _choice(cleaned, gold)
    spelled = re.sub(r"^(\d+) to (\d+)$", r"\1:\2", spell(cleaned))
    found: list[Shape] = [] if choice is None else [choice]
    clock = re.fullmatch(r"(\d{1,2})(?::(\d\d))?\s?([ap])\.?\s?m\.?", spelled, re.IGNORECASE)
    if clock:
        return (Words(f"{int(clock[1])}:{clock[2] or '00'} {clock[3].lower()}m"),)
    counted = _counted(spelled)
    if counted is not None:
        found.append(counted)
    reason = "it is no answer"
    try:
        words = tokens(spelled)
        found.append(_shape(words))
        if any(word.grouped for word in words):
            found.append(_shape(tokens(spelled, group=False)))
    except (Unreadable, RecursionError) as error:
        reason = str(error)
    if not gold:
        decimal = re.fullmatch(r"([-+]?\d+),(\d{1,2}|\d{4,})", spelled)
        if decimal:
            found.append(Value(number(Fraction(f"{decimal[1]}.{decimal[2]}"))))
    glued = re.fullmatch(r"([-+]?[\d.,]*\d)([A-Za-z]{1,3})", spelled)
    if glued and glued[2] in units.GLUED:
        found.append(_glued(glued[1], glued[2]))
    in_words = _words(cleaned, gold)
    if in_words is not None:
        found.append(in_words)
    if not found:
        raise Unreadable(reason)
    return tuple(found)


def _glued(figures: str, unit: str) -> Value:
    value = _shape(tokens(figures))
    read = units.read_unit([Token("word", unit, False)])
    if not isinstance(value, Value) or read is None:
        raise Unreadable("no number stands before the unit")
    return Value(value.node, unit=read[0], sure=False)


def _counted(text: str) -> Value | None:
    """A number in English words, perhaps with a unit: `twenty-one`, `one hundred and five apples`, `two thirds`."""
    words = re.findall(r"[a-z]+", text.lower()) if re.fullmatch(r"[A-Za-z][A-Za-z ,-]{0,80}", text) else []
    if not words or words[0] not in _COUNT:
        return None
    total_, part, used = Fraction(0), Fraction(0), 0
    for i, word in enumerate(words):
        if word in _COUNT:
            if used and words[i - 1] in _COUNT and not (part % 100 >= 20 and part % 10 == 0 and 0 < _COUNT[word] < 10):
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


def _choice(text: str, gold: bool) -> Words | None:
    plain = re.sub(r"\\(?:text|textbf|mathrm|mathbf|textit|rm|bf)\s*\{([^{}]*)\}", r" \1 ", text).strip("{} \xa0*_`")
    match = _CHOICE.fullmatch(plain)
    if match is not None and (match[1].isupper() or plain != match[1] or not gold):
        return Words(match[1].upper())
    match = _CHOICE_WITH_VALUE.fullmatch(plain)
    return None if match is None else Words(match[1])


def _words(text: str, gold: bool) -> Words | None:
    stated = re.fullmatch(r"\\(?:text|textbf|mathrm|mathbf|textit|textrm|operatorname)\s*\{([^{}]*)\}", text.strip())
    plain = " ".join((stated[1] if stated else text).replace("\xa0", " ").split()).strip(" .!*_`\"'")
    low = plain.casefold()
    if low in _PHRASES:
        return Words(_PHRASES[low])
    if not _NAMES.fullmatch(plain) or len(plain) < 2:
        return None
    if gold and (set(low.split()) & _NO_ANSWER or (stated is None and len(low.split()) > 2)):
        return None
    return Words(low)


def _shape(words: Sequence[Token]) -> Shape:
    words = _unwrapped(list(words))
    if not words:
        raise Unreadable("it is empty")
    parts = _split(words, _is_separator)
    if len(parts) > 1:
        parts = [part for part in parts if part]
        if len(parts) > MAX_ITEMS:
            raise Unreadable(f"it lists more than {MAX_ITEMS} values")
        if not parts:
            raise Unreadable("it is empty")
        return _flat(tuple(_shape(part) for part in parts))
    parts = _split(words, lambda t: t.kind == "command" and t.text in ("cup",) or (t.kind == "word" and t.text == "U"))
    if len(parts) > 1 and all(parts):
        return Union(tuple(_shape(part) for part in parts))
    if any(t.kind == "command" and t.text in ("pm", "mp") for t in words):
        return _both_signs(words)
    relation = _relation(words)
    if relation is not None:
        return relation
    bracketed = _bracketed(words)
    if bracketed is not None:
        return bracketed
    parts = _split(words, lambda t: t.kind == "sign" and t.text == ":")
    if len(parts) > 1 and all(parts):
        return Ratio(tuple(_shape(part) for part in parts))
    return _value(words)


def _flat(items: tuple[Shape, ...]) -> Shape:
    """Answers side by side. Relations joined by `and` stay relations."""
    flat: list[Shape] = []
    for item in items:
        flat += item.items if isinstance(item, Many) and not item.braces else (item,)
    return flat[0] if len(flat) == 1 else Many(tuple(flat))


def _unwrapped(words: list[Token]) -> list[Token]:
    """Without braces or words around the whole."""
    while len(words) >= 2 and words[0].kind == "sign" and words[0].text == "{" and _closes(words, 0) == len(words) - 1:
        words = words[1:-1]
    if words and words[0].kind == "text" and words[0].text.endswith(("=", "is", ":")):
        words = words[1:]
    return words


def _closes(words: Sequence[Token], start: int) -> int | None:
    """Where the bracket at `start` closes; brackets of an interval may differ."""
    depth = 0
    for i in range(start, len(words)):
        token = words[i]
        if token.kind == "sign" or (token.kind == "command" and token.text in "{}"):
            depth += (token.text in "([{") - (token.text in ")]}")
            if depth == 0:
                return i
    return None


def _is_separator(token: Token) -> bool:
    if token.kind == "sign":
        return token.text in ",;"
    if token.kind == "command":
        return token.text in ("\\", "wedge", "vee")
    return token.text.strip(" ,").lower() in ("and", "or") and token.kind in ("text", "word")


def _split(words: Sequence[Token], separates: object) -> list[list[Token]]:
    """Apart at the signs outside brackets."""
    assert callable(separates)
    parts: list[list[Token]] = [[]]
    depth = 0
    inside_matrix = 0
    for token in words:
        if token.kind == "sign" or (token.kind == "command" and token.text in "{}"):
            depth += (token.text in "([{") - (token.text in ")]}")
        if token.kind == "command" and token.text in ("begin", "end"):
            inside_matrix += 1 if token.text == "begin" else -1
        if depth == 0 and inside_matrix == 0 and separates(token):
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _both_signs(words: Sequence[Token]) -> Shape:
    r"""`a \pm b` as the two values; in both, `\mp` takes the other sign."""
    both = []
    for upper, lower in (("+", "-"), ("-", "+")):
        both.append(
            [
                Token("sign", upper if t.text == "pm" else lower, t.spaced)
                if t.kind == "command" and t.text in ("pm", "mp")
                else t
                for t in words
            ]
        )
    first, second = _shape(both[0]), _shape(both[1])
    if isinstance(first, Relation) and isinstance(second, Relation) and first.sides[0] == second.sides[0]:
        return Many((first, second))
    return _flat((first, second))


def _sign_of(token: Token) -> str | None:
    if token.kind == "sign":
        return SIGNS.get(token.text)
    return _SIGN_COMMANDS.get(token.text) if token.kind == "command" else None


def _relation(words: Sequence[Token]) -> Shape | None:
    parts = _split(words, lambda t: t.kind == "command" and t.text == "in")
    if len(parts) == 2 and all(parts):
        return _shape(parts[1])  # `x \in [0, 1]` says the interval
    signs: list[str] = []

    def is_sign(token: Token) -> bool:
        sign = _sign_of(token)
        if sign is not None:
            signs.append(sign)
        return sign is not None

    parts = _split(words, is_sign)
    if not signs:
        return None
    if not parts[0] and len(parts) == 2 and signs[0] in ("=", r"\approx"):
        return _shape(parts[1])
    if any(not part for part in parts):
        raise Unreadable("a side of it is missing")
    sides = tuple(_shape(part) for part in parts)
    if signs == ["="] and isinstance(sides[0], Group):
        return sides[1]  # `(x, y) = (8, 5)` says the pair
    return Relation(sides, tuple(signs))


def _bracketed(words: Sequence[Token]) -> Shape | None:
    first, last = words[0], words[-1]
    if first.kind == "command" and first.text in ("emptyset",) and len(words) == 1:
        return Many((), braces=True)
    if first.kind == "command" and first.text == "mathbb" and [w.text for w in words[1:]] in (["{", "R", "}"], ["R"]):
        return Group("(", (Value(negative(constant("infinity"))), Value(constant("infinity"))), ")")
    if first.kind == "command" and first.text == "begin":
        return _matrix(words)
    if _closes(words, 0) != len(words) - 1:
        return None
    inside = words[1:-1]
    if first.kind == "command" and first.text == "{":
        builder = _split(inside, lambda t: t.kind == "sign" and t.text in "|:")
        if len(builder) == 2 and all(builder):
            return _shape(builder[1])
        return Many(_items(inside) if inside else (), braces=True)
    if first.kind != "sign" or first.text not in "([":
        return None
    items = _items(inside)
    if len(items) > 1:
        if first.text == "[" and last.text == "]" and all(_is_row(item) for item in items):
            rows = tuple(item.items for item in items if isinstance(item, Group))
            if len({len(row) for row in rows}) == 1:
                return Matrix(rows)
        return Group(first.text, items, last.text)
    if isinstance(items[0], Matrix):
        return items[0]
    if first.text == "[" or last.text == "]":
        return Group(first.text, items, last.text) if first.text == "[" and last.text == "]" else None
    return items[0] if not isinstance(items[0], Value) else None


def _is_row(shape: Shape) -> bool:
    return isinstance(shape, Group) and shape.opening == "["


def _items(words: Sequence[Token]) -> tuple[Shape, ...]:
    parts = _split(words, lambda t: t.kind == "sign" and t.text in ",;")
    if len(parts) > MAX_ITEMS:
        raise Unreadable(f"it lists more than {MAX_ITEMS} values")
    if any(not part for part in parts):
        raise Unreadable("a value of a list is missing")
    return tuple(_shape(part) for part in parts)


def _matrix(words: Sequence[Token]) -> Shape:
    r"""`\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}` with any brackets but those of a determinant."""
    kind = words[2].text if len(words) > 4 and words[1].text == "{" else ""
    ends = [i for i, w in enumerate(words) if w.kind == "command" and w.text == "end"]
    if kind not in ("pmatrix", "bmatrix", "matrix", "Bmatrix", "smallmatrix", "array") or len(ends) != 1:
        raise Unreadable("the environment is no matrix")
    if ends[0] != len(words) - 4:
        raise Unreadable("something follows a matrix")
    body = list(words[4 : ends[0]])
    if kind == "array" and body and body[0].text == "{":
        end = _closes(body, 0)
        body = body[(end or 0) + 1 :]
    rows = _split(body, lambda t: t.kind == "command" and t.text == "\\")
    rows = [row for row in rows if row]
    shapes = tuple(
        tuple(_shape(cell) for cell in _split(row, lambda t: t.kind == "sign" and t.text == "&")) for row in rows
    )
    if not shapes or len({len(row) for row in shapes}) != 1 or len(shapes) * len(shapes[0]) > MAX_ITEMS:
        raise Unreadable("the rows of a matrix differ in length")
    return Matrix(shapes)


def _value(words: Sequence[Token]) -> Value:
    words = list(words)
    unit: units.Unit | None = None
    if words and words[0].text in units._CURRENCY:
        unit, words = units.currency(words[0].text), words[1:]
    elif len(words) > 2 and words[0].text in "+-" and words[1].text in units._CURRENCY:
        unit, words = units.currency(words[1].text), [words[0], *words[2:]]
    cut = _unit_starts(words)
    behind = words[cut:]
    words = words[:cut]
    percent = False
    if words and words[-1].kind == "sign" and words[-1].text == "%" and len(words) > 1:
        percent, words = True, words[:-1]
    elif behind and behind[0].text.lower() in ("percent", "pct", "percentage"):
        percent, behind = True, behind[1:]
    elif len(behind) > 1 and behind[0].text == "per" and behind[1].text == "cent":
        percent, behind = True, behind[2:]
    if not words:
        raise Unreadable("it holds no number and no expression")
    node = read_expression(words)
    if behind:
        read = units.read_unit(behind)
        if read is None:
            raise Unreadable("what stands behind the number is no unit")
        if read[1] != 1:
            node = product(node, number(read[1]))
        if not read[0].is_measure and not any(t.kind in ("number", "command") for t in words):
            raise Unreadable("it is words, not a number")
        if unit is None and (read[0].dimensions or read[0].nouns):
            unit = read[0]
    return Value(node, percent=percent, unit=unit)


def _unit_starts(words: Sequence[Token]) -> int:
    r"""Where the unit begins: at the first text, degree sign, currency sign, or word that is no part of an expression."""
    depth = 0
    applied = False  # degrees within `\sin 60^\circ` are part of the expression
    for i, token in enumerate(words):
        if token.kind == "sign":
            depth += (token.text in "([{") - (token.text in ")]}")
        applied = applied or (token.text in FUNCTIONS and token.kind in ("command", "word"))
        if depth or i == 0:
            continue
        if token.kind == "text" or (token.kind == "sign" and token.text in units._CURRENCY):
            return i
        if token.kind == "sign" and token.text == "^" and _is_degree(words[i + 1 : i + 2]) and not applied:
            rest = words[i + 2 :]
            if not rest or rest[0].kind in ("text", "word"):
                return i
        if token.kind == "word" and not is_letters(token.text) and _starts_unit(token, words[i - 1]):
            return i
        if token.kind == "word" and token.spaced and words[i - 1].kind == "number":
            if units.is_unit(token.text) or (len(token.text) > 2 and token.text not in FUNCTIONS):
                return i
    return len(words)


def _is_degree(words: Sequence[Token]) -> bool:
    return bool(words) and words[0].kind == "command" and words[0].text == "circ"


def _starts_unit(token: Token, before: Token) -> bool:
    if before.kind == "sign" and before.text in "+-*/^_(":
        return False
    if token.text in FUNCTIONS and token.text not in ("min", "sec", "deg"):
        return False
    return not (token.text in ("pi", "infinity", "sqrt"))

