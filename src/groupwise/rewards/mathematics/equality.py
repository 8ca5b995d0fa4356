r"""Whether two answers are the same, as a teacher would say. docs/rewards/math_answer.md holds the decisions.

Rational numbers are compared exactly. What is not rational is compared by the `Values` that is handed in: `Exact`
decides what needs no arithmetic but fractions and raises `UndecidedError` otherwise; `Numeric` decides the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

from groupwise.rewards.mathematics import evaluation, units
from groupwise.rewards.mathematics.forms import (
    FLIPPED,
    all_reals,
    as_union,
    assignments,
    difference,
    distinct,
    halves,
    has_symbols,
    holds_intervals,
    in_order,
    interval_of,
    is_name,
    is_rounding,
    mirrored,
    names_a_graph,
    plain,
    values_of,
)
from groupwise.rewards.mathematics.nodes import Node, constant, negative, number, power, product
from groupwise.rewards.mathematics.shapes import (
    Group,
    Many,
    Matrix,
    Ratio,
    Relation,
    Shape,
    Union,
    Value,
    Words,
)


class UndecidedError(Exception):
    """Fractions alone do not say whether two expressions are equal."""


class Values(Protocol):
    """What decides about expressions."""

    def same(self, a: Node, b: Node) -> bool:
        """Whether they are equal wherever both have a value."""

    def ratio(self, a: Node, b: Node) -> int:
        """The sign of a / b where that is one real number, 0 where it is not."""

    def near(self, exact: Node, decimal: Node) -> bool:
        """Whether a decimal is an irrational number rounded to the decimal's digits."""


class Exact:
    """Decides by fractions and by what is written; everything else is undecided."""

    def same(self, a: Node, b: Node) -> bool:
        """See `Values`. Raises UndecidedError."""
        if a.key == b.key:
            return True
        if a.value is not None and b.value is not None:
            return False
        if _is_lone(a) and _is_lone(b):
            return False  # a number, a variable, a constant: two of these are equal only if they are written alike
        raise UndecidedError

    def ratio(self, a: Node, b: Node) -> int:
        """See `Values`. Raises UndecidedError."""
        if a.key == b.key:
            return 1
        if a.key == negative(b).key:
            return -1
        raise UndecidedError

    def near(self, exact: Node, decimal: Node) -> bool:
        """See `Values`. Raises UndecidedError."""
        raise UndecidedError


class Numeric(Exact):
    """Decides by values at many points where fractions do not."""

    def same(self, a: Node, b: Node) -> bool:
        """See `Values`. Raises evaluation.UnknownValueError."""
        try:
            return super().same(a, b)
        except UndecidedError:
            return evaluation.same_values(a, b)

    def ratio(self, a: Node, b: Node) -> int:
        """See `Values`. Raises evaluation.UnknownValueError."""
        try:
            return super().ratio(a, b)
        except UndecidedError:
            return evaluation.ratio(a, b)

    def near(self, exact: Node, decimal: Node) -> bool:
        """See `Values`. Raises evaluation.UnknownValueError."""
        return evaluation.rounds(exact, decimal)


def _is_lone(node: Node) -> bool:
    return node.kind in ("number", "symbol", "based") or (node.kind == "constant" and node.name != "i")


def same_answer(gold: Sequence[Shape], answer: Sequence[Shape], values: Values) -> bool:
    """Whether any reading of the answer is any reading of the gold.

    Raises:
        UndecidedError, evaluation.UnknownValueError: as `values` does, where no reading is the same and one is open.
    """
    undecided: Exception | None = None
    for right in gold:
        for said in answer:
            try:
                if _same(right, said, values):
                    return True
            except (UndecidedError, evaluation.UnknownValueError) as error:
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
        if isinstance(said, Many) and said.items and (not said.braces or len(said.items) == 1):
            return all(
                _same(gold, item, values) for item in said.items
            )  # one value, stated several times over
        said = _stated(said, gold, values)
        if isinstance(said, Value):
            return _same_value(gold, said, values)
        if isinstance(said, Ratio) and len(said.items) == 2:
            return _same_ratio(Ratio(halves(gold)), said, values) if halves(gold) else False
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
        if isinstance(said, Value) and len(gold.items) == 2 and halves(said):
            said = Ratio(halves(said))
        return isinstance(said, Ratio) and _same_ratio(gold, said, values)
    return isinstance(gold, Matrix) and _same_matrix(gold, said, values)


def _same_words(gold: Shape, said: Shape) -> bool:
    if isinstance(gold, Many) and not gold.items:
        return isinstance(said, Words) and said.text == "no solution"
    if isinstance(said, Many) and not said.items:
        return isinstance(gold, Words) and gold.text == "no solution"
    if isinstance(gold, Words) and gold.text == "all real numbers":
        gold = all_reals()
    if isinstance(said, Words) and said.text == "all real numbers":
        said = all_reals()
    return gold == said


def _stated(said: Shape, gold: Value, values: Values) -> Shape:
    r"""The value that an answer with equals signs states: `x = 5`, `5 + 7 = 12`, `x = 1/3 \approx 0.33`."""
    if not isinstance(said, Relation) or not set(said.signs) <= {"=", r"\approx"}:
        return said
    exact = [
        side
        for side, sign in zip(said.sides[1:], said.signs, strict=True)
        if sign == "=" and isinstance(side, Value)
    ]
    rounded = [side for side, sign in zip(said.sides[1:], said.signs, strict=True) if sign == r"\approx"]
    first = said.sides[0]
    if not exact and isinstance(first, Value) and not is_name(first):
        exact = [first]
    if exact and rounded and isinstance(rounded[-1], Value) and _rounds(exact[-1], rounded[-1], gold, values):
        try:
            return rounded[-1] if _same_value(gold, rounded[-1], values) else exact[-1]
        except (UndecidedError, evaluation.UnknownValueError):
            return exact[-1]
    if exact:
        return exact[-1]
    return rounded[-1] if rounded else said


def _rounds(exact: Value, rounded: Value, gold: Value, values: Values) -> bool:
    """Whether a decimal is the exact value rounded to its digits; looked at only where the gold is that decimal.

    Raises UndecidedError, evaluation.UnknownValueError: `values` cannot decide.
    """
    if exact.node.value is not None or rounded.node.value is None or gold.node.key != rounded.node.key:
        return is_rounding(exact, rounded)
    return values.near(exact.node, rounded.node)


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
    if gold.percent != said.percent:
        other = said.unit if gold.percent else gold.unit
        if other is not None and other.is_measure:
            return False
    pairs = [(gold.node, said.node if factor == 1 else product(number(factor), said.node))]
    if said.percent and not gold.percent:
        pairs = [(gold.node, product(number(Fraction(1, 100)), said.node))]
        if gold.node.value is None or abs(gold.node.value) >= 1:
            pairs.append(
                (gold.node, said.node)
            )  # the question asked for per cent, and the gold is stored bare
    elif gold.unit is None and said.unit == units.CENTS:
        pairs.append((gold.node, product(number(Fraction(1, 100)), said.node)))  # the data may count dollars
    elif gold.percent and not said.percent:
        pairs.append((product(number(Fraction(1, 100)), gold.node), said.node))
    undecided: Exception | None = None
    for right, answer in pairs:
        try:
            if values.same(right, answer):
                return True
        except (UndecidedError, evaluation.UnknownValueError) as error:
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
    is_assignment = set(gold.signs) == {"="} and isinstance(first, Value) and is_name(first)
    if not isinstance(said, Relation):
        if is_assignment:  # the value alone answers `x = 14`, not `u + v = 6`
            lone = isinstance(first, Value) and first.node.kind != "product"
            return lone and _same(gold.sides[-1], said, values)
        interval = interval_of(gold)
        return interval is not None and _same(interval, said, values)
    if is_assignment and set(said.signs) <= {"=", r"\approx"}:
        name = said.sides[0]
        if isinstance(name, Value) and is_name(name) and isinstance(first, Value):
            if name.node.key == first.node.key:
                end = (
                    _stated(said, gold.sides[-1], values)
                    if isinstance(gold.sides[-1], Value)
                    else said.sides[-1]
                )
                return _same(gold.sides[-1], end, values)
            if name.node.kind == first.node.kind == "symbol" and not has_symbols(gold.sides[-1]):
                return False  # another variable
            if names_a_graph(first) and names_a_graph(name) and len(gold.sides) == len(said.sides) == 2:
                return _same(gold.sides[1], said.sides[1], values)  # `y = 2x` and `f(x) = 2x`
    if len(gold.signs) == 1 and len(said.signs) == 1:
        return _same_single(gold, said, values)
    for sides, signs in ((said.sides, said.signs), mirrored(said)):
        if tuple(signs) == gold.signs and _all_same(gold.sides, sides, values):
            return True
    right, answer = interval_of(gold), interval_of(said)
    return right is not None and answer is not None and _same(right, answer, values)


def _same_single(gold: Relation, said: Relation, values: Values) -> bool:
    """Equations and inequalities with one sign, by what is left when one side is taken from the other."""
    sides = [*gold.sides, *said.sides]
    if not all(isinstance(side, Value) for side in sides):
        return (gold.signs == said.signs and _all_same(gold.sides, said.sides, values)) or (
            FLIPPED[said.signs[0]] == gold.signs[0] and _all_same(gold.sides, said.sides[::-1], values)
        )
    left, right = (difference(relation) for relation in (gold, said))
    sign = gold.signs[0]
    if said.signs[0] not in (sign, FLIPPED[sign]):
        return False
    if left.value is not None or right.value is not None:
        return left.key == right.key and sign == said.signs[0]
    direction = values.ratio(left, right)
    if sign in ("=", r"\ne"):
        return direction != 0
    return direction == (1 if said.signs[0] == sign else -1)


def _all_same(gold: Sequence[Shape], said: Sequence[Shape], values: Values) -> bool:
    return len(gold) == len(said) and all(_same(a, b, values) for a, b in zip(gold, said, strict=True))


def _same_many(gold: Many, said: Shape, values: Values) -> bool:
    assigned = assignments(gold)
    if assigned is not None:
        if isinstance(said, Many):
            other = assignments(said)
            if other is not None:
                return assigned.keys() == other.keys() and all(
                    _same(assigned[name], other[name], values) for name in assigned
                )
            return any(_all_same(order, said.items, values) for order in in_order(assigned))
        if isinstance(said, Group) and said.opening == "(":
            return any(_all_same(order, said.items, values) for order in in_order(assigned))
        return False
    if isinstance(said, Union):
        return _same_union(as_union(gold), said, values)
    if isinstance(said, Group):
        if said.opening == "[" and len(said.items) < 3:
            return False  # an interval is not a set of two
        return not gold.braces and _all_same(values_of(gold), said.items, values)
    items = values_of(said) if isinstance(said, Many) else (said,)
    if isinstance(said, Many) and assignments(said) is not None and items == said.items:
        return False  # values of several variables
    if holds_intervals(gold):
        return isinstance(said, Many) and _same_union(as_union(gold), as_union(said), values)
    return _matched(values_of(gold), items, values)


def _matched(gold: Sequence[Shape], said: Sequence[Shape], values: Values) -> bool:
    """Whether every value has its partner: none missing, none over; a value said twice counts once."""
    right, answer = distinct(gold), distinct(said)
    if len(right) != len(answer):
        return False
    left = list(answer)
    for item in right:
        partner = next((i for i, other in enumerate(left) if _same(item, other, values)), None)
        if partner is None:
            return False
        del left[partner]
    return True


def _same_group(gold: Group, said: Shape, values: Values) -> bool:
    if isinstance(said, Relation):
        interval = interval_of(said)
        return interval is not None and _same(gold, interval, values)
    if isinstance(said, Many):
        assigned = assignments(said)
        if assigned is not None:
            return gold.opening == "(" and any(
                _all_same(gold.items, order, values) for order in in_order(assigned)
            )
        return gold.opening == "(" and not said.braces and _all_same(gold.items, said.items, values)
    if isinstance(said, Matrix):
        flat = said.rows[0] if len(said.rows) == 1 else tuple(row[0] for row in said.rows)
        return (len(said.rows) == 1 or len(said.rows[0]) == 1) and _all_same(gold.items, flat, values)
    if not isinstance(said, Group):
        return False
    vectors = len(gold.items) != 2 and {gold.opening + gold.closing, said.opening + said.closing} <= {
        "()",
        "[]",
    }
    if not vectors and (gold.opening, gold.closing) != (said.opening, said.closing):
        return False
    return _all_same(gold.items, said.items, values)


def _same_union(gold: Union, said: Shape, values: Values) -> bool:
    if isinstance(said, Relation):
        interval = interval_of(said)
        return interval is not None and isinstance(interval, Union) and _same_union(gold, interval, values)
    if isinstance(said, Many):
        said = as_union(said)
    return isinstance(said, Union) and _matched(gold.parts, said.parts, values)


def _same_ratio(gold: Ratio, said: Ratio, values: Values) -> bool:
    """Proportional: 5:18 is 10:36, and 18:5 is not."""
    if len(gold.items) != len(said.items) or not all(
        isinstance(v, Value) for v in [*gold.items, *said.items]
    ):
        return False
    right = [plain(v) for v in gold.items if isinstance(v, Value)]
    answer = [plain(v) for v in said.items if isinstance(v, Value)]
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
