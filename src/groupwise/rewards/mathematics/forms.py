"""What an answer says in other forms: an inequality as an interval, assignments as a pair, a fraction as a ratio."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from groupwise.rewards.mathematics.nodes import Node, constant, negative, number, product, total
from groupwise.rewards.mathematics.shapes import Group, Many, Relation, Shape, Union, Value

FLIPPED = {
    "<": ">",
    ">": "<",
    r"\le": r"\ge",
    r"\ge": r"\le",
    "=": "=",
    r"\ne": r"\ne",
    r"\approx": r"\approx",
}


def is_rounding(exact: Value, rounded: Value) -> bool:
    """True when a decimal is a rational number rounded to its own digits."""
    a, b = exact.node.value, rounded.node.value
    if a is None or b is None:
        return False
    a *= (100 if rounded.percent else 1) / Fraction(100 if exact.percent else 1)  # to what its figures count
    places = 0
    while (b * 10**places).denominator != 1:
        places += 1
        if places > 30:
            return False
    return abs(a - b) * 2 <= Fraction(1, 10**places)


def is_name(value: Value) -> bool:
    r"""True for what can stand on the left of an assignment: `x`, `x_1`, `f(x)`, `AB`, `\theta`."""
    node = value.node
    if node.kind == "symbol" or (node.kind == "function" and node.name in ("f", "g")):
        return True
    return node.kind == "product" and all(part.kind == "symbol" for part in node.parts)


def names_a_graph(value: Value) -> bool:
    """True for `y` and for a function of `x`."""
    node = value.node
    return node.key == "`y`" or (
        node.kind == "function" and node.name in ("f", "g") and node.parts[0].key == "`x`"
    )


def halves(value: Value) -> tuple[Shape, ...]:
    """A fraction as the two sides of a ratio."""
    fraction = value.node.value
    if fraction is None or fraction.denominator == 1 or value.percent:
        return ()
    return (Value(number(fraction.numerator)), Value(number(fraction.denominator)))


def has_symbols(shape: Shape) -> bool:
    """True for an expression with a variable in it."""
    return isinstance(shape, Value) and "`" in shape.node.key


def mirrored(relation: Relation) -> tuple[tuple[Shape, ...], tuple[str, ...]]:
    """The sides and signs of a relation read from the right."""
    return relation.sides[::-1], tuple(FLIPPED[sign] for sign in relation.signs[::-1])


def difference(relation: Relation) -> Node:
    """The left side of a relation of two values less the right."""
    left, right = relation.sides
    assert isinstance(left, Value)
    assert isinstance(right, Value)
    return total(plain(left), negative(plain(right)))


def plain(value: Value) -> Node:
    """The expression, a per cent as a hundredth."""
    return product(value.node, number(Fraction(1, 100))) if value.percent else value.node


def interval_of(relation: Relation) -> Shape | None:
    r"""The interval that an inequality in one variable alone says: `x > 5`, `-3 \le x \le 6`, `x \ne 2`."""
    infinity = Value(constant("infinity"))
    minus_infinity = Value(negative(constant("infinity")))
    sides, signs = relation.sides, relation.signs
    around = _around(relation)
    if around is not None:
        return around
    if len(signs) == 1 and not is_variable(sides[0]) and is_variable(sides[1]):
        sides, signs = mirrored(relation)
    if len(signs) == 1 and is_variable(sides[0]) and not has_symbols(sides[1]):
        bound = sides[1]
        if signs[0] in (">", r"\ge"):
            return Group("(" if signs[0] == ">" else "[", (bound, infinity), ")")
        if signs[0] in ("<", r"\le"):
            return Group("(", (minus_infinity, bound), ")" if signs[0] == "<" else "]")
        if signs[0] == r"\ne":
            return Union((Group("(", (minus_infinity, bound), ")"), Group("(", (bound, infinity), ")")))
    if len(signs) == 2 and is_variable(sides[1]):
        if signs[0] in (">", r"\ge"):
            sides, signs = mirrored(relation)
        if signs[0] in ("<", r"\le") and signs[1] in ("<", r"\le"):
            return Group(
                "(" if signs[0] == "<" else "[", (sides[0], sides[2]), ")" if signs[1] == "<" else "]"
            )
    return None


def both_bounds(shape: Shape) -> Shape | None:
    r"""The interval that two inequalities say together, `x > 1, x < 4`; None where they leave nothing or everything.

    Only a lower bound below an upper one: `x < 1, x > 4` names two intervals.
    """
    if not isinstance(shape, Many) or shape.braces or len(shape.items) != 2:
        return None
    names: list[Shape] = []
    bounds: list[Group] = []
    for item in shape.items:
        if not isinstance(item, Relation) or len(item.signs) != 1:
            return None
        names += [side for side in item.sides if is_variable(side)]
        interval = interval_of(item)
        if not isinstance(interval, Group):
            return None
        bounds.append(interval)
    infinity = constant("infinity").key
    below = [b for b in bounds if isinstance(b.items[1], Value) and b.items[1].node.key == infinity]
    above = [b for b in bounds if b not in below]
    if len(names) != 2 or names[0] != names[1] or len(below) != 1 or len(above) != 1:
        return None
    low, high = below[0].items[0], above[0].items[1]
    if not isinstance(low, Value) or not isinstance(high, Value):
        return None
    if low.node.value is None or high.node.value is None or low.node.value >= high.node.value:
        return None
    return Group(below[0].opening, (low, high), above[0].closing)


def _around(relation: Relation) -> Shape | None:
    r"""The interval that the distance from a number says: `|x| < 2`, `|x - 1| \ge 3`."""
    sides, signs = relation.sides, relation.signs
    if len(signs) != 1 or not all(isinstance(side, Value) for side in sides):
        return None
    if isinstance(sides[1], Value) and sides[1].node.kind == "function":
        sides, signs = mirrored(relation)
    size, bound = sides
    assert isinstance(size, Value)
    assert isinstance(bound, Value)
    radius, sign = bound.node.value, signs[0]
    if size.node.name != "abs" or size.node.kind != "function" or radius is None or radius <= 0:
        return None
    inside = size.node.parts[0]
    middle = Fraction(0)
    shift = inside.parts[1].value if inside.kind == "sum" and len(inside.parts) == 2 else None
    if shift is not None:
        inside, middle = inside.parts[0], -shift
    if inside.kind != "symbol" or sign not in ("<", r"\le", ">", r"\ge"):
        return None
    low, high = Value(number(middle - radius)), Value(number(middle + radius))
    if sign in ("<", r"\le"):
        return Group("(" if sign == "<" else "[", (low, high), ")" if sign == "<" else "]")
    left = Group("(", (Value(negative(constant("infinity"))), low), ")" if sign == ">" else "]")
    return Union((left, Group("(" if sign == ">" else "[", (high, Value(constant("infinity"))), ")")))


def is_variable(shape: Shape) -> bool:
    """True for a variable alone."""
    return isinstance(shape, Value) and shape.node.kind == "symbol"


def assignments(many: Many) -> dict[str, Shape] | None:
    """`x = 8, y = 5` as names and values; None when it is anything else, or a name is given twice."""
    found: dict[str, Shape] = {}
    for item in many.items:
        if not isinstance(item, Relation) or set(item.signs) != {"="}:
            return None
        name = item.sides[0]
        if not isinstance(name, Value) or not is_name(name) or name.node.key in found:
            return None
        found[name.node.key] = item.sides[-1]
    return found if len(found) > 1 else None


def values_of(many: Many) -> tuple[Shape, ...]:
    """The values of `x = 2, x = 3`, or of `x = 2, 3`; the items themselves otherwise."""
    names = {
        item.sides[0].node.key
        for item in many.items
        if isinstance(item, Relation)
        and set(item.signs) == {"="}
        and isinstance(item.sides[0], Value)
        and is_name(item.sides[0])
    }
    if len({re.sub(r"_\d+", "", name) for name in names}) != 1:  # x_1 and x_2 are two values of x
        return many.items
    return tuple(item.sides[-1] if isinstance(item, Relation) else item for item in many.items)


def in_order(assigned: dict[str, Shape]) -> list[tuple[Shape, ...]]:
    """The values of assignments as a pair would list them: by name, and for other names than x, y, z as stated."""
    by_name = tuple(assigned[name] for name in sorted(assigned))
    stated = tuple(assigned.values())
    return [by_name] if set(assigned) <= {"`x`", "`y`", "`z`"} else [by_name, stated]


def holds_intervals(many: Many) -> bool:
    """True where every value is an inequality that says an interval."""
    return bool(many.items) and all(
        isinstance(item, Relation) and set(item.signs) != {"="} and interval_of(item) is not None
        for item in many.items
    )


def as_union(many: Many) -> Union:
    """The values as a union of intervals."""
    parts = [interval_of(item) if isinstance(item, Relation) else item for item in many.items]
    return Union(tuple(part for part in parts if part is not None))


def distinct(items: Sequence[Shape]) -> list[Shape]:
    """The values without what is written twice."""
    kept: list[Shape] = []
    for item in items:
        if not any(identical(item, other) for other in kept):
            kept.append(item)
    return kept


def identical(a: Shape, b: Shape) -> bool:
    """True for values written alike, whatever their order and grouping."""
    if isinstance(a, Value) and isinstance(b, Value):
        return a.node.key == b.node.key and a.percent == b.percent and a.unit == b.unit
    return a == b


def all_reals() -> Shape:
    """The line of real numbers as an interval."""
    return Group("(", (Value(negative(constant("infinity"))), Value(constant("infinity"))), ")")
