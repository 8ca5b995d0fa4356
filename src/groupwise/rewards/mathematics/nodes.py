"""Expressions as trees. Whatever is rational is a fraction from the start; nothing large is ever computed."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

MAX_DIGITS = 4000
"""Longest whole number that is computed; a longer power stays a power. Below Python's own limit on printing."""


class UnreadableError(Exception):
    """A text is no answer that is understood; the message says why, as a clause."""


@dataclass(frozen=True, slots=True)
class Node:
    """An expression. `key` is equal for expressions that differ only in order, grouping and rational arithmetic."""

    kind: str
    """`number`, `symbol`, `constant`, `sum`, `product`, `power`, `function`, `based`."""
    key: str
    """The whole tree as text, its parts sorted where their order does not matter."""
    parts: tuple[Node, ...] = ()
    """What it is made of."""
    value: Fraction | None = None
    """Of a number."""
    name: str = ""
    """Of a symbol, constant or function; the digits and base of a number in another base."""


def number(value: Fraction | int) -> Node:
    """A rational number."""
    value = Fraction(value)
    return Node("number", _digits(value), value=value)


def _digits(value: Fraction) -> str:
    if digits(value) > MAX_DIGITS:
        raise UnreadableError("it holds a number of too many digits")
    return str(value)


def digits(value: Fraction) -> int:
    """About how many digits the larger half of a fraction has."""
    return max(value.numerator.bit_length(), value.denominator.bit_length()) * 302 // 1000


def symbol(name: str) -> Node:
    """A variable, or anything of which only the name is known."""
    return Node("symbol", f"`{name}`", name=name)


def constant(name: str) -> Node:
    """`pi`, `e`, `i` or `infinity`."""
    return Node("constant", f"!{name}", name=name)


def based(written: str, base: str) -> Node:
    """Digits in a base that is stated: `312_7`."""
    return Node("based", f"{written}_{base}", name=f"{written}_{base}")


def function(name: str, *parts: Node) -> Node:
    """A function of what is given."""
    return Node("function", f"{name}({','.join(p.key for p in parts)})", parts, name=name)


def total(*parts: Node) -> Node:
    """The sum; numbers among the parts are added."""
    flat = [q for p in parts for q in (p.parts if p.kind == "sum" else (p,))]
    value = sum((p.value for p in flat if p.value is not None), Fraction(0))
    others = sorted((p for p in flat if p.value is None), key=lambda p: p.key)
    if value != 0 or not others:
        others.append(number(value))
    if len(others) == 1:
        return others[0]
    return Node("sum", "+(" + ",".join(p.key for p in others) + ")", tuple(others))


def product(*parts: Node) -> Node:
    """The product; numbers among the parts are multiplied, and a zero keeps what might be undefined beside it."""
    flat = [q for p in parts for q in (p.parts if p.kind == "product" else (p,))]
    value = Fraction(1)
    for part in flat:
        if part.value is not None:
            value *= part.value
            if digits(value) > MAX_DIGITS:
                raise UnreadableError("it holds a number of too many digits")
    others = sorted((p for p in flat if p.value is None), key=lambda p: p.key)
    if value != 1 or not others:
        others.append(number(value))
    if len(others) == 1:
        return others[0]
    return Node("product", "*(" + ",".join(p.key for p in others) + ")", tuple(others))


def negative(node: Node) -> Node:
    """Minus the node, carried into a sum's numbers so that `-(a - 1)` and `1 - a` are one."""
    if node.kind == "sum":
        return total(*(negative(part) for part in node.parts))
    return product(number(-1), node)


def quotient(over: Node, under: Node) -> Node:
    """over / under. Raises UnreadableError for a division by zero."""
    return product(over, power(under, number(-1)))


def power(base: Node, exponent: Node) -> Node:
    """The power, computed where it is rational and not too long; a zero to a negative power is refused."""
    if base.value is not None and exponent.value is not None:
        if base.value == 0 and exponent.value <= 0:
            raise UnreadableError(
                "it divides by zero" if exponent.value < 0 else "it holds zero to the power of zero"
            )
        exact = _rational_power(base.value, exponent.value)
        if exact is not None:
            return number(exact)
    if exponent.value == 1:
        return base
    if base.kind == "power" and exponent.value == -1 and base.parts[1].value is not None:
        return power(base.parts[0], number(-base.parts[1].value))
    if base.kind == "product" and exponent.value == -1:
        return product(*(power(part, exponent) for part in base.parts))
    return Node("power", f"^({base.key},{exponent.key})", (base, exponent))


def _rational_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    """The power if it is rational and short enough, else None."""
    if exponent.denominator > 64 or (base < 0 and exponent.denominator > 1):
        return None
    if base in (0, 1):
        return base
    if base == -1:
        return Fraction(-1) ** (exponent.numerator % 2)
    if abs(exponent.numerator) > MAX_DIGITS * 4 or digits(base) * abs(exponent.numerator) > MAX_DIGITS:
        return None
    over, under = _root(base.numerator, exponent.denominator), _root(base.denominator, exponent.denominator)
    if over is None or under is None:
        return None
    result: Fraction = Fraction(over, under) ** exponent.numerator
    return result if digits(result) <= MAX_DIGITS else None


def _root(value: int, degree: int) -> int | None:
    """The whole root of a whole number, or None when there is none."""
    if degree == 1 or value in (0, 1):
        return value
    low, high = 0, 1 << (value.bit_length() // degree + 1)
    while low < high:  # bisection, exact for any size
        middle = (low + high) // 2
        if middle**degree < value:
            low = middle + 1
        else:
            high = middle
    return low if low**degree == value else None


def symbols(node: Node) -> set[str]:
    """The names of all variables in it."""
    if node.kind == "symbol":
        return {node.name}
    return set().union(*(symbols(part) for part in node.parts)) if node.parts else set()


def constants(node: Node) -> set[str]:
    """The names of all constants in it."""
    if node.kind == "constant":
        return {node.name}
    return set().union(*(constants(part) for part in node.parts)) if node.parts else set()
