"""From the words of an answer to its shape: brackets, separators, relations, matrices, units."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction

from groupwise.rewards.mathematics import units
from groupwise.rewards.mathematics.expressions import FUNCTIONS, is_letters, read_expression
from groupwise.rewards.mathematics.nodes import UnreadableError, constant, negative, number, product
from groupwise.rewards.mathematics.shapes import (
    Group,
    Many,
    Matrix,
    Ratio,
    Relation,
    Shape,
    Union,
    Value,
)
from groupwise.rewards.mathematics.tokens import Token

MAX_ITEMS = 50
"""Most values that an answer may list."""
SIGNS = {"=": "=", "<": "<", ">": ">"}
_SIGN_COMMANDS = {
    "le": r"\le",
    "ge": r"\ge",
    "ne": r"\ne",
    "approx": r"\approx",
    "equiv": "=",
    "<": "<",
    ">": ">",
}


def shape_of(words: Sequence[Token]) -> Shape:
    """The shape of an answer.

    Raises:
        UnreadableError: it is none; says why.
    """
    words = _unwrapped(list(words))
    if not words:
        raise UnreadableError("it is empty")
    parts = _split(words, _is_separator)
    if len(parts) > 1:
        parts = [part for part in parts if part]
        if len(parts) > MAX_ITEMS:
            raise UnreadableError(f"it lists more than {MAX_ITEMS} values")
        if not parts:
            raise UnreadableError("it is empty")
        return _flat(tuple(shape_of(part) for part in parts))
    parts = _split(
        words, lambda t: (t.kind == "command" and t.text in ("cup",)) or (t.kind == "word" and t.text == "U")
    )
    if len(parts) > 1 and all(parts):
        return Union(tuple(shape_of(part) for part in parts))
    parts = _split(words, lambda t: t.kind == "command" and t.text == "setminus")
    if [w.text for w in words[:5]] == ["mathbb", "{", "R", "}", "-"] and len(words) > 5:
        parts = [list(words[:4]), list(words[5:])]
    if len(parts) == 2 and all(parts):
        return _line_without(shape_of(parts[0]), shape_of(parts[1]))
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
        return Ratio(tuple(shape_of(part) for part in parts))
    return _value(words)


def _line_without(line: Shape, points: Shape) -> Shape:
    """The real numbers but for some, as intervals."""
    values = (
        [item.node.value for item in points.items if isinstance(item, Value)]
        if isinstance(points, Many)
        else []
    )
    known = sorted(value for value in values if value is not None)
    if (
        not isinstance(points, Many)
        or not known
        or len(known) != len(points.items)
        or not isinstance(line, Group)
    ):
        raise UnreadableError("a difference of sets is not known")
    low, high = Value(negative(constant("infinity"))), Value(constant("infinity"))
    if line != Group("(", (low, high), ")"):
        raise UnreadableError("a difference of sets is not known")
    ends = [low, *(Value(number(value)) for value in known), high]
    return Union(tuple(Group("(", (a, b), ")") for a, b in itertools.pairwise(ends)))


def _flat(items: tuple[Shape, ...]) -> Shape:
    """Answers side by side. Relations joined by `and` stay relations."""
    flat: list[Shape] = []
    for item in items:
        flat += item.items if isinstance(item, Many) and not item.braces else (item,)
    return flat[0] if len(flat) == 1 else Many(tuple(flat))


def _unwrapped(words: list[Token]) -> list[Token]:
    """Without braces or words around the whole."""
    while (
        len(words) >= 2
        and words[0].kind == "sign"
        and words[0].text == "{"
        and _closes(words, 0) == len(words) - 1
    ):
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
    return token.text.strip(" ,").lower() in ("and", "or", "") and token.kind in ("text", "word")


def _split(words: Sequence[Token], separates: Callable[[Token], bool]) -> list[list[Token]]:
    """Apart at the signs outside brackets."""
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
    first, second = shape_of(both[0]), shape_of(both[1])
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
        return shape_of(parts[1])  # `x \in [0, 1]` says the interval
    signs: list[str] = []

    def is_sign(token: Token) -> bool:
        sign = _sign_of(token)
        if sign is not None:
            signs.append(sign)
        return sign is not None

    parts = _split(words, is_sign)
    if not signs:
        return None
    if len(parts) > 1 and parts[0] and all(token.kind == "text" for token in parts[0]):
        parts[0] = []  # `\text{Total} = 10` names what is stated
    if not parts[0] and len(parts) > 2 and signs[0] == "=":
        parts, signs = parts[1:], signs[1:]
    if not parts[0] and len(parts) == 2 and signs[0] in ("=", r"\approx"):
        return shape_of(parts[1])
    if any(not part for part in parts):
        raise UnreadableError("a side of it is missing")
    if signs == ["="] and any(t.kind == "command" for t in parts[0]) and not _readable(parts[0]):
        return shape_of(parts[1])  # `\angle ABC = 45^\circ` and `\lim_{x \to 0} f(x) = 3` name what is stated
    sides = tuple(shape_of(part) for part in parts)
    if signs == ["="] and isinstance(sides[0], Group):
        return sides[1]  # `(x, y) = (8, 5)` says the pair
    return Relation(sides, tuple(signs))


def _readable(words: Sequence[Token]) -> bool:
    try:
        shape_of(words)
    except UnreadableError:
        return False
    return True


def _bracketed(words: Sequence[Token]) -> Shape | None:
    first, last = words[0], words[-1]
    if first.kind == "command" and first.text in ("emptyset",) and len(words) == 1:
        return Many((), braces=True)
    if (
        first.kind == "command"
        and first.text == "mathbb"
        and [w.text for w in words[1:]] in (["{", "R", "}"], ["R"])
    ):
        return Group("(", (Value(negative(constant("infinity"))), Value(constant("infinity"))), ")")
    if first.kind == "command" and first.text == "begin":
        return _lines(words) or _matrix(words)
    if _closes(words, 0) != len(words) - 1:
        return _multiple(words)
    inside = words[1:-1]
    if first.kind == "command" and first.text == "{":
        builder = _split(inside, lambda t: t.kind == "sign" and t.text in "|:")
        if len(builder) == 2 and all(builder):
            return shape_of(builder[1])
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
    if first.text == "[" and last.text == "]" and isinstance(items[0], Value):
        return items[0]
    if first.text == "[" or last.text == "]":
        return Group(first.text, items, last.text) if first.text == "[" and last.text == "]" else None
    return items[0] if not isinstance(items[0], Value) else None


def _is_row(shape: Shape) -> bool:
    return isinstance(shape, Group) and shape.opening == "["


def _items(words: Sequence[Token]) -> tuple[Shape, ...]:
    parts = _split(words, lambda t: t.kind == "sign" and t.text in ",;")
    if len(parts) > MAX_ITEMS:
        raise UnreadableError(f"it lists more than {MAX_ITEMS} values")
    if any(not part for part in parts):
        raise UnreadableError("a value of a list is missing")
    return tuple(shape_of(part) for part in parts)


_LINES = frozenset({"cases", "aligned", "align", "gathered", "split", "equation"})


def _lines(words: Sequence[Token]) -> Shape | None:
    r"""What the lines of an environment that is no matrix say together, `\begin{cases} x=1 \\ y=2 \end{cases}`."""
    ends = [i for i, w in enumerate(words) if w.kind == "command" and w.text == "end"]
    if len(words) < 9 or words[2].text not in _LINES or len(ends) != 1:
        return None
    start, end = 5 if words[3].text == "*" else 4, ends[0]
    if len(words) != end + start:
        return None
    inside = [w for w in words[start:end] if not (w.kind == "sign" and w.text == "&")]
    if any(w.kind == "command" and w.text in ("begin", "end") for w in inside) or not inside:
        raise UnreadableError("the environment is no matrix")
    return shape_of(inside)


def _multiple(words: Sequence[Token]) -> Shape | None:
    """A number before a matrix, with which every entry is multiplied."""
    start = next((i for i, w in enumerate(words) if w.kind == "command" and w.text == "begin"), 0)
    factor = list(words[:start])
    if factor and factor[-1].text in "([" and words[-1].text in ")]":
        factor, words = factor[:-1], words[:-1]
    if factor and factor[-1].text in ("cdot", "*"):
        factor = factor[:-1]
    if not factor:
        return None
    matrix = _matrix(words[start:])
    if not isinstance(matrix, Matrix):
        return None
    by = read_expression(
        [*factor, Token("number", "1", False, Fraction(1))] if factor[-1].text == "-" else factor
    )
    rows = []
    for row in matrix.rows:
        if not all(isinstance(cell, Value) for cell in row):
            return None
        rows.append(tuple(Value(product(by, cell.node)) for cell in row if isinstance(cell, Value)))
    return Matrix(tuple(rows))


def _matrix(words: Sequence[Token]) -> Shape:
    r"""`\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}` with any brackets but those of a determinant."""
    kind = words[2].text if len(words) > 4 and words[1].text == "{" else ""
    ends = [i for i, w in enumerate(words) if w.kind == "command" and w.text == "end"]
    if kind not in ("pmatrix", "bmatrix", "matrix", "Bmatrix", "smallmatrix", "array") or len(ends) != 1:
        raise UnreadableError("the environment is no matrix")
    if ends[0] != len(words) - 4:
        raise UnreadableError("something follows a matrix")
    body = list(words[4 : ends[0]])
    if kind == "array" and body and body[0].text == "{":
        end = _closes(body, 0)
        body = body[(end or 0) + 1 :]
    rows = _split(body, lambda t: t.kind == "command" and t.text == "\\")
    rows = [row for row in rows if row]
    shapes = tuple(
        tuple(shape_of(cell) for cell in _split(row, lambda t: t.kind == "sign" and t.text == "&"))
        for row in rows
    )
    if not shapes or len({len(row) for row in shapes}) != 1 or len(shapes) * len(shapes[0]) > MAX_ITEMS:
        raise UnreadableError("the rows of a matrix differ in length")
    return Matrix(shapes)


def _value(words: Sequence[Token]) -> Value:
    words = list(words)
    unit: units.Unit | None = None
    signs = [w.text for w, after in itertools.pairwise(words) if _is_money(w, after)]
    if signs and len(set(signs)) == 1:
        unit = units.currency(signs[0])
        words = [w for w, after in itertools.pairwise([*words, words[-1]]) if not _is_money(w, after)]
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
        raise UnreadableError("it holds no number and no expression")
    node = read_expression(words)
    if behind:
        read = units.read_unit(behind)
        if read is None:
            raise UnreadableError("what stands behind the number is no unit")
        if read[1] != 1:
            node = product(node, number(read[1]))
        if not read[0].is_measure and not any(t.kind in ("number", "command") for t in words):
            raise UnreadableError("it is words, not a number")
        if unit is None and (read[0].dimensions or read[0].nouns):
            unit = read[0]
    return Value(node, percent=percent, unit=unit)


def _is_money(token: Token, after: Token) -> bool:
    """True for a currency sign before a number: `$5`, `$-5`."""
    return token.kind == "sign" and token.text in units.CURRENCY and after.text[:1] in "-+.0123456789"


def _unit_starts(words: Sequence[Token]) -> int:
    r"""Where the unit begins: at the first text, degree or currency sign, or word that is no part of an expression."""
    depth = 0
    applied = False  # degrees within `\sin 60^\circ` are part of the expression
    for i, token in enumerate(words):
        if token.kind == "sign":
            depth += (token.text in "([{") - (token.text in ")]}")
        applied = applied or (token.text in FUNCTIONS and token.kind in ("command", "word"))
        if depth or i == 0:
            continue
        if token.kind == "text" or (token.kind == "sign" and token.text in units.CURRENCY):
            return i
        if token.kind == "sign" and token.text == "^" and _is_degree(words[i + 1 : i + 2]) and not applied:
            rest = words[i + 2 :]
            if not rest or rest[0].kind in ("text", "word"):
                return i
        per = (
            token.kind == "sign"
            and token.text == "/"
            and words[i - 1].kind == "number"
            and len(words) > i + 1
            and words[i + 1].text not in FUNCTIONS
            and words[i + 1].text != "sqrt"
        )
        if per and (
            words[i + 1].kind == "text" or (words[i + 1].kind == "word" and len(words[i + 1].text) > 2)
        ):
            return i
        if token.kind == "word" and not is_letters(token.text) and _starts_unit(token, words[i - 1]):
            return i
        follows = token.kind == "word" and token.spaced and words[i - 1].kind == "number"
        if follows and (units.is_unit(token.text) or (len(token.text) > 2 and token.text not in FUNCTIONS)):
            return i
    return len(words)


def _is_degree(words: Sequence[Token]) -> bool:
    return bool(words) and words[0].kind == "command" and words[0].text == "circ"


def _starts_unit(token: Token, before: Token) -> bool:
    if before.kind == "sign" and before.text in "+-*/^_(":
        return False
    if token.text in FUNCTIONS and token.text not in ("min", "sec", "deg"):
        return False
    return token.text not in ("pi", "infinity", "sqrt")
