r"""Whether two answers are the same, as a teacher would say. docs/rewards/math_answer.md holds the decisions.

Rational numbers are compared exactly. What is not rational is compared by the `Values` that is handed in: `Exact`
decides what needs no arithmetic but fractions and raises `Undecided` otherwise; `Numeric` decides the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

from groupwise.rewards.mathematics import evaluation, units
from groupwise.rewards.mathematics.nodes import Node, constant, negative, number, power, product, total
from groupwise.rewards.mathematics.shapes import Group, Many, Matrix, Ratio, Relation, Shape, Union, Value, Words

FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", "=": "=", r"\ne": r"\ne", r"\approx": r"\approx"}


class Undecided(Exception):
    """Fractions alone do not say whether two expressions are equal."""


class Values(Protocol):
    """What decides about expressions."""

    def same(self, a: Node, b: Node) -> bool:
        """Whether they are equal wherever both have a value."""

    def ratio(self, a: Node, b: Node) -> int:
        """The sign of a / b where that is one real number, 0 where it is not."""


class Exact:
    """Decides by fractions and by what is written; everything else is undecided."""

    def same(self, a: Node, b: Node) -> bool:
        """See `Values`. Raises Undecided."""
        if a.key == b.key:
            return True
        if a.value is not None and b.value is not None:
            return False
        if _is_lone(a) and _is_lone(b):
            return False  # a number, a variable, a constant: two of these are equal only if they are written alike
        raise Undecided

    def ratio(self, a: Node, b: Node) -> int:
        """See `Values`. Raises Undecided."""
        if a.key == b.key:
            return 1
        if a.key == negative(b).key:
            return -1
        raise Undecided


class Numeric(Exact):
    """Decides by values at many points where fractions do not."""

    def same(self, a: Node, b: Node) -> bool:
        """See `Values`. Raises evaluation.Unknown."""
        try:
            return super().same(a, b)
        except Undecided:
            return evaluation.same_values(a, b)

    def ratio(self, a: Node, b: Node) -> int:
        """See `Values`. Raises evaluation.Unknown."""
        try:
            return super().ratio(a, b)
        except Undecided:
            return evaluation.ratio(a, b)


def _is_lone(node: Node) -> bool:
    return node.kind in ("number", "symbol", "based") or (node.kind == "constant" and node.name != "i")


def same_answer(gold: Sequence[Shape], answer: Sequence[Shape], values: Values) -> bool:
    """Whether any reading of the answer is any reading of the gold.

    Raises:
        Undecided, evaluation.Unknown: as `values` does, when no reading is the same and one is undecided.
    """
    undecided: Exception | None = None
    for right in gold:
        for said in answer:
            try:
                if _same(right, said, values):
                    return True
            except (Undecided, evaluation.Unknown) as error:
                undecided = error
    if undecided is not None:
        raise undecided
    return False


def _same(gold: Shape, said: Shape, values: Values) -> bool:
    if isinstance(gold, Words) or isinstance(said, Words):
        return _same_words(gold, said)
    if isinstance(gold, Relation) and len(set(gold.signs)) == 1 and gold.signs[0] == r"\approx":
        gold = gold.sides[-1]
    if isinstance(gold, Value):
        if isinstance(said, Many) and said.items and not said.braces:
            return all(_same(gold, item, values) for item in said.items)  # one value, stated several times over
        said = _stated(said, gold, values)
        if isinstance(said, Value):
            return _same_value(gold, said, values)
        if isinstance(said, Ratio) and len(said.items) == 2:
            return _same_ratio(Ratio(_halves(gold)), said, values) if _halves(gold) else False
        return False
    if isinstance(gold, Relation):
        return _same_relation(gold, said, values)
    if isinstance(gold, Many):
        return _same_many(gold, said, values)
    if isinstance(gold, Group):
        return _same_group(gold, said, values)
    if isinstance(gold, Union):
        return _same_union(gold, said, values)
    if isinstance(gold, Ratio):
        if isinstance(said, Value) and len(gold.items) == 2 and _halves(said):
            said = Ratio(_halves(said))
        return isinstance(said, Ratio) and _same_ratio(gold, said, values)
    return _same_matrix(gold, said, values)


def _same_words(gold: Shape, said: Shape) -> bool:
    if isinstance(gold, Many) and not gold.items:
        return isinstance(said, Words) and said.text == "no solution"
    if isinstance(said, Many) and not said.items:
        return isinstance(gold, Words) and gold.text == "no solution"
    if isinstance(gold, Words) and gold.text == "all real numbers":
        gold = _all_reals()
    if isinstance(said, Words) and said.text == "all real numbers":
        said = _all_reals()
    return gold == said


def _all_reals() -> Shape:
    return Group("(", (Value(negative(constant("infinity"))), Value(constant("infinity"))), ")")


def _stated(said: Shape, gold: Value, values: Values) -> Shape:
    r"""The value that an answer with equals signs states: `x = 5`, `5 + 7 = 12`, `x = 1/3 \approx 0.33`."""
    if not isinstance(said, Relation) or not set(said.signs) <= {"=", r"\approx"}:
        return said
    exact = [
        side for side, sign in zip(said.sides[1:], said.signs, strict=True) if sign == "=" and isinstance(side, Value)
    ]
    rounded = [side for side, sign in zip(said.sides[1:], said.signs, strict=True) if sign == r"\approx"]
    first = said.sides[0]
    if not exact and isinstance(first, Value) and not _is_name(first):
        exact = [first]
    if exact and rounded and isinstance(rounded[-1], Value) and _is_rounding(exact[-1], rounded[-1]):
        try:
            return rounded[-1] if _same_value(gold, rounded[-1], values) else exact[-1]
        except (Undecided, evaluation.Unknown):
            return exact[-1]
    if exact:
        return exact[-1]
    return rounded[-1] if rounded else said


def _is_rounding(exact: Value, rounded: Value) -> bool:
    """True when a decimal is a rational number rounded to its own digits."""
    a, b = exact.node.value, rounded.node.value
    if a is None or b is None:
        return False
    places = 0
    while (b * 10**places).denominator != 1:
        places += 1
        if places > 30:
            return False
    return abs(a - b) * 2 <= Fraction(1, 10**places)


def _is_name(value: Value) -> bool:
    r"""True for what can stand on the left of an assignment: `x`, `x_1`, `f(x)`, `AB`, `\theta`."""
    node = value.node
    if node.kind == "symbol" or (node.kind == "function" and node.name in ("f", "g")):
        return True
    return node.kind == "product" and all(part.kind == "symbol" for part in node.parts)


def _halves(value: Value) -> tuple[Shape, ...]:
    """A fraction as the two sides of a ratio."""
    fraction = value.node.value
    if fraction is None or fraction.denominator == 1 or value.percent:
        return ()
    return (Value(number(fraction.numerator)), Value(number(fraction.denominator)))


def _same_value(gold: Value, said: Value, values: Values) -> bool:
    factor = units.compatible(gold.unit, said.unit)
    if factor is None:
        return _same_angle(gold, said, values)
    gold_has_unit = gold.unit is not None and bool(gold.unit.dimensions or gold.unit.nouns)
    said_has_unit = said.unit is not None and bool(said.unit.dimensions or said.unit.nouns)
    if gold_has_unit and not gold.sure and not said_has_unit:
        return False  # `3m` may be three times m
    if gold.node.kind == "based" or said.node.kind == "based":
        return _same_based(gold.node, said.node)
    pairs = [(gold.node, said.node if factor == 1 else product(number(factor), said.node))]
    if said.percent and not gold.percent:
        pairs = [(gold.node, product(number(Fraction(1, 100)), said.node))]
        if gold.node.value is None or abs(gold.node.value) >= 1:
            pairs.append((gold.node, said.node))  # the question asked for per cent, and the gold is stored bare
    elif gold.percent and not said.percent:
        pairs.append((product(number(Fraction(1, 100)), gold.node), said.node))
    undecided: Exception | None = None
    for right, answer in pairs:
        try:
            if values.same(right, answer):
                return True
        except (Undecided, evaluation.Unknown) as error:
            undecided = error
    if undecided is not None:
        raise undecided
    return _same_angle(gold, said, values)


def _same_angle(gold: Value, said: Value, values: Values) -> bool:
    """An angle in degrees and the same in radians; radians without the word only where they hold a pi."""
    degrees = (("angle", 1),)
    for one, other in ((gold, said), (said, gold)):
        if one.unit is None or one.unit.dimensions != degrees:
            continue
        is_radian = other.unit is not None and other.unit.dimensions == (("radian", 1),)
        if is_radian or (other.unit is None and "!pi" in other.node.key):
            return values.same(product(one.node, constant("pi"), number(Fraction(1, 180))), other.node)
    return False


def _same_based(gold: Node, said: Node) -> bool:
    """Numbers in a base: digits and base must agree; a base that only one of them states is the other's too."""
    if gold.kind == said.kind:
        return gold.key == said.key
    bare = said if gold.kind == "based" else gold
    written = (gold if gold.kind == "based" else said).name.split("_")[0]
    return bare.value is not None and bare.value == int(written)


def _same_relation(gold: Relation, said: Shape, values: Values) -> bool:
    first = gold.sides[0]
    is_assignment = set(gold.signs) == {"="} and isinstance(first, Value) and _is_name(first)
    if not isinstance(said, Relation):
        if is_assignment:  # the value alone answers `x = 14`, not `u + v = 6`
            lone = isinstance(first, Value) and first.node.kind != "product"
            return lone and _same(gold.sides[-1], said, values)
        interval = interval_of(gold)
        return interval is not None and _same(interval, said, values)
    if is_assignment and set(said.signs) <= {"=", r"\approx"}:
        name = said.sides[0]
        if isinstance(name, Value) and _is_name(name) and isinstance(first, Value):
            if name.node.key == first.node.key:
                end = _stated(said, gold.sides[-1], values) if isinstance(gold.sides[-1], Value) else said.sides[-1]
                return _same(gold.sides[-1], end, values)
            if name.node.kind == first.node.kind == "symbol" and not _has_symbols(gold.sides[-1]):
                return False  # another variable
    if len(gold.signs) == 1 and len(said.signs) == 1:
        return _same_single(gold, said, values)
    for sides, signs in ((said.sides, said.signs), _reversed(said)):
        if tuple(signs) == gold.signs and len(sides) == len(gold.sides):
            if _all_same(gold.sides, sides, values):
                return True
    right, answer = interval_of(gold), interval_of(said)
    return right is not None and answer is not None and _same(right, answer, values)


def _has_symbols(shape: Shape) -> bool:
    return isinstance(shape, Value) and "`" in shape.node.key


def _reversed(relation: Relation) -> tuple[tuple[Shape, ...], tuple[str, ...]]:
    return relation.sides[::-1], tuple(FLIPPED[sign] for sign in relation.signs[::-1])


def _same_single(gold: Relation, said: Relation, values: Values) -> bool:
    """Equations and inequalities with one sign, by what is left when one side is taken from the other."""
    sides = [*gold.sides, *said.sides]
    if not all(isinstance(side, Value) for side in sides):
        return (gold.signs == said.signs and _all_same(gold.sides, said.sides, values)) or (
            FLIPPED[said.signs[0]] == gold.signs[0] and _all_same(gold.sides, said.sides[::-1], values)
        )
    left, right = (_difference(relation) for relation in (gold, said))
    sign = gold.signs[0]
    if said.signs[0] not in (sign, FLIPPED[sign]):
        return False
    if left.value is not None or right.value is not None:
        return left.key == right.key and sign == said.signs[0]
    direction = values.ratio(left, right)
    if sign in ("=", r"\ne"):
        return direction != 0
    return direction == (1 if said.signs[0] == sign else -1)


def _difference(relation: Relation) -> Node:
    left, right = relation.sides
    assert isinstance(left, Value)
    assert isinstance(right, Value)
    return total(_plain(left), negative(_plain(right)))


def _plain(value: Value) -> Node:
    return product(value.node, number(Fraction(1, 100))) if value.percent else value.node


def interval_of(relation: Relation) -> Shape | None:
    r"""The interval that an inequality in one variable alone says: `x > 5`, `-3 \le x \le 6`, `x \ne 2`."""
    infinity = Value(constant("infinity"))
    minus_infinity = Value(negative(constant("infinity")))
    sides, signs = relation.sides, relation.signs
    if len(signs) == 1 and not _is_variable(sides[0]) and _is_variable(sides[1]):
        sides, signs = _reversed(relation)
    if len(signs) == 1 and _is_variable(sides[0]) and not _has_symbols(sides[1]):
        bound = sides[1]
        if signs[0] in (">", r"\ge"):
            return Group("(" if signs[0] == ">" else "[", (bound, infinity), ")")
        if signs[0] in ("<", r"\le"):
            return Group("(", (minus_infinity, bound), ")" if signs[0] == "<" else "]")
        if signs[0] == r"\ne":
            return Union((Group("(", (minus_infinity, bound), ")"), Group("(", (bound, infinity), ")")))
    if len(signs) == 2 and _is_variable(sides[1]):
        if signs[0] in (">", r"\ge"):
            sides, signs = _reversed(relation)
        if signs[0] in ("<", r"\le") and signs[1] in ("<", r"\le"):
            return Group("(" if signs[0] == "<" else "[", (sides[0], sides[2]), ")" if signs[1] == "<" else "]")
    return None


def _is_variable(shape: Shape) -> bool:
    return isinstance(shape, Value) and shape.node.kind == "symbol"


def _all_same(gold: Sequence[Shape], said: Sequence[Shape], values: Values) -> bool:
    return len(gold) == len(said) and all(_same(a, b, values) for a, b in zip(gold, said, strict=True))


def _assigned(many: Many) -> dict[str, Shape] | None:
    """`x = 8, y = 5` as names and values; None when it is anything else, or a name is given twice."""
    found: dict[str, Shape] = {}
    for item in many.items:
        if not isinstance(item, Relation) or set(item.signs) != {"="}:
            return None
        name = item.sides[0]
        if not isinstance(name, Value) or not _is_name(name) or name.node.key in found:
            return None
        found[name.node.key] = item.sides[-1]
    return found if len(found) > 1 else None


def _values_of(many: Many) -> tuple[Shape, ...]:
    """The values of `x = 2, x = 3`, or of `x = 2, 3`; the items themselves otherwise."""
    names = {
        item.sides[0].node.key
        for item in many.items
        if isinstance(item, Relation)
        and set(item.signs) == {"="}
        and isinstance(item.sides[0], Value)
        and _is_name(item.sides[0])
    }
    if len(names) != 1:
        return many.items
    return tuple(item.sides[-1] if isinstance(item, Relation) else item for item in many.items)


def _in_order(assigned: dict[str, Shape]) -> list[tuple[Shape, ...]]:
    """The values of assignments as a pair would list them: by name, and for other names than x, y, z as stated."""
    by_name = tuple(assigned[name] for name in sorted(assigned))
    stated = tuple(assigned.values())
    return [by_name] if set(assigned) <= {"`x`", "`y`", "`z`"} else [by_name, stated]


def _same_many(gold: Many, said: Shape, values: Values) -> bool:
    assigned = _assigned(gold)
    if assigned is not None:
        if isinstance(said, Many):
            other = _assigned(said)
            if other is not None:
                return assigned.keys() == other.keys() and all(
                    _same(assigned[name], other[name], values) for name in assigned
                )
            return any(_all_same(order, said.items, values) for order in _in_order(assigned))
        if isinstance(said, Group) and said.opening == "(":
            return any(_all_same(order, said.items, values) for order in _in_order(assigned))
        return False
    if isinstance(said, Union):
        return _same_union(_as_union(gold), said, values)
    if isinstance(said, Group):
        if said.opening == "[" and len(said.items) < 3:
            return False  # an interval is not a set of two
        return not gold.braces and _all_same(_values_of(gold), said.items, values)
    items = _values_of(said) if isinstance(said, Many) else (said,)
    if isinstance(said, Many) and _assigned(said) is not None:
        return False
    if _holds_intervals(gold):
        return isinstance(said, Many) and _same_union(_as_union(gold), _as_union(said), values)
    return _matched(_values_of(gold), items, values)


def _holds_intervals(many: Many) -> bool:
    return bool(many.items) and all(
        isinstance(item, Relation) and set(item.signs) != {"="} and interval_of(item) is not None for item in many.items
    )


def _as_union(many: Many) -> Union:
    parts = [interval_of(item) if isinstance(item, Relation) else item for item in many.items]
    return Union(tuple(part for part in parts if part is not None))


def _matched(gold: Sequence[Shape], said: Sequence[Shape], values: Values) -> bool:
    """Whether every value has its partner: none missing, none over; a value said twice counts once."""
    right, answer = _distinct(gold), _distinct(said)
    if len(right) != len(answer):
        return False
    left = list(answer)
    for item in right:
        partner = next((i for i, other in enumerate(left) if _same(item, other, values)), None)
        if partner is None:
            return False
        del left[partner]
    return True


def _distinct(items: Sequence[Shape]) -> list[Shape]:
    kept: list[Shape] = []
    for item in items:
        if not any(_identical(item, other) for other in kept):
            kept.append(item)
    return kept


def _identical(a: Shape, b: Shape) -> bool:
    if isinstance(a, Value) and isinstance(b, Value):
        return a.node.key == b.node.key and a.percent == b.percent and a.unit == b.unit
    return a == b


def _same_group(gold: Group, said: Shape, values: Values) -> bool:
    if isinstance(said, Relation):
        interval = interval_of(said)
        return interval is not None and _same(gold, interval, values)
    if isinstance(said, Many):
        assigned = _assigned(said)
        if assigned is not None:
            return gold.opening == "(" and any(_all_same(gold.items, order, values) for order in _in_order(assigned))
        return gold.opening == "(" and not said.braces and _all_same(gold.items, said.items, values)
    if isinstance(said, Matrix):
        flat = said.rows[0] if len(said.rows) == 1 else tuple(row[0] for row in said.rows)
        return (len(said.rows) == 1 or len(said.rows[0]) == 1) and _all_same(gold.items, flat, values)
    if not isinstance(said, Group):
        return False
    vectors = len(gold.items) != 2 and {gold.opening + gold.closing, said.opening + said.closing} <= {"()", "[]"}
    if not vectors and (gold.opening, gold.closing) != (said.opening, said.closing):
        return False
    return _all_same(gold.items, said.items, values)


def _same_union(gold: Union, said: Shape, values: Values) -> bool:
    if isinstance(said, Relation):
        interval = interval_of(said)
        return interval is not None and isinstance(interval, Union) and _same_union(gold, interval, values)
    if isinstance(said, Many):
        said = _as_union(said)
    return isinstance(said, Union) and _matched(gold.parts, said.parts, values)


def _same_ratio(gold: Ratio, said: Ratio, values: Values) -> bool:
    """Proportional: 5:18 is 10:36, and 18:5 is not."""
    if len(gold.items) != len(said.items) or not all(isinstance(v, Value) for v in [*gold.items, *said.items]):
        return False
    right = [_plain(v) for v in gold.items if isinstance(v, Value)]
    answer = [_plain(v) for v in said.items if isinstance(v, Value)]
    if any(node.value == 0 for node in [*right, *answer]):
        return all(a.key == b.key for a, b in zip(right, answer, strict=True))
    factors = [product(a, power(b, number(-1))) for a, b in zip(right, answer, strict=True)]
    return all(values.same(factors[0], factor) for factor in factors[1:])


def _same_matrix(gold: Matrix, said: Shape, values: Values) -> bool:
    if isinstance(said, Group) and (len(gold.rows) == 1 or len(gold.rows[0]) == 1):
        flat = gold.rows[0] if len(gold.rows) == 1 else tuple(row[0] for row in gold.rows)
        return _all_same(flat, said.items, values)
    return (
        isinstance(said, Matrix)
        and len(gold.rows) == len(said.rows)
        and all(_all_same(a, b, values) for a, b in zip(gold.rows, said.rows, strict=True))
    )
