"""Whether two expressions are equal: by their values at many points, to sixty digits.

Two elementary expressions that agree to sixty digits at several points drawn without regard to them are the same;
one point where they differ proves that they are not. Roots, logarithms and the like are real where they can be: at a
point where a part has no real value nothing is compared, so that sqrt(x) sqrt(y) equals sqrt(x y). Expressions with
`i`, and those without a point of real values, are compared over the complex numbers by principal values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from groupwise.rewards.mathematics.nodes import MAX_DIGITS, Node, constants, symbols

DIGITS = 60
"""Digits that are computed first; a second look takes twice as many."""
LOST = 15
"""Of these, digits in which equal values may differ, for what cancels."""
POINTS = 16
"""Points that are tried."""
ENOUGH = 3
"""Points at which both must have a value."""


class UnknownValueError(Exception):
    """The values cannot be computed, so nothing is decided."""


class _OutsideError(Exception):
    """There is no value at this point."""


def same_values(a: Node, b: Node) -> bool:
    """Whether two expressions are equal wherever both have a value.

    Raises:
        UnknownValueError: there are too few points at which both have one.
    """
    names = sorted(symbols(a) | symbols(b))
    modes = [True] if "i" in constants(a) | constants(b) else [False, True]
    for is_complex in modes:
        met = 0
        for point in range(POINTS if names else 1):
            try:
                alike = _alike_at(a, b, {name: _coordinate(name, point) for name in names}, is_complex)
            except _OutsideError:
                continue
            if not alike:
                return False
            met += 1
            if met >= 8:
                break
        if met >= (ENOUGH if names else 1):
            return True
    raise UnknownValueError


def rounds(exact: Node, decimal: Node) -> bool:
    """Whether a decimal is the value of an expression without variables, rounded to the decimal's own digits.

    Raises:
        UnknownValueError: the expression has variables or no real value.
    """
    import mpmath

    if symbols(exact) or decimal.value is None:
        raise UnknownValueError
    places = 0
    while (decimal.value * 10**places).denominator != 1:
        places += 1
        if places > 30:
            return False
    with mpmath.workdps(DIGITS):
        try:
            value = _value(exact, {}, False)
        except _OutsideError as error:
            raise UnknownValueError from error
        return bool(
            abs(value - mpmath.mpf(decimal.value.numerator) / decimal.value.denominator) * 2
            <= mpmath.mpf(10) ** -places
        )


def ratio(a: Node, b: Node) -> int:
    """The sign of a / b where that is one and the same real number everywhere, 0 where it is not.

    So `a = 0` and `b = 0` are one equation unless this is 0, and `a < 0` is `b < 0` if it is 1, `b > 0` if it is -1.

    Raises:
        UnknownValueError: there are too few points at which both have a value.
    """
    import mpmath

    names = sorted(symbols(a) | symbols(b))
    if not names:
        raise UnknownValueError
    first: Any = None
    met = 0
    with mpmath.workdps(DIGITS):
        for point in range(POINTS):
            values = {name: _coordinate(name, point) for name in names}
            try:
                over, under = _value(a, values, False), _value(b, values, False)
            except _OutsideError:
                continue
            if under == 0 or over == 0:
                if under != over:
                    return 0
                continue
            this = over / under
            if first is None:
                first = this
            elif abs(this - first) > mpmath.mpf(10) ** (LOST - DIGITS) * abs(first):
                return 0
            met += 1
    if met < ENOUGH:
        raise UnknownValueError
    return 1 if first > 0 else -1


def _alike_at(a: Node, b: Node, values: Mapping[str, Fraction], is_complex: bool) -> bool:
    import mpmath

    for digits in (DIGITS, 2 * DIGITS):
        with mpmath.workdps(digits):
            left, right = _value(a, values, is_complex), _value(b, values, is_complex)
            scale = max(abs(left), abs(right))
            tolerance = mpmath.mpf(10) ** (LOST - digits)
            # Where both are zero but for what a cancellation leaves, that shrinks with the digits.
            if abs(left - right) > tolerance * scale and scale > tolerance:
                return False
    return True


def _coordinate(name: str, point: int) -> Fraction:
    """A fixed value for a variable: between 0 and 3 for the first points, then of both signs, then larger."""
    word = hashlib.sha256(f"{name} {point}".encode()).digest()
    share = Fraction(int.from_bytes(word[:4], "big") | 1, 2**32)
    if point < 5:
        return share * 3
    return (share * 2 - 1) * (3 if point < 11 else 40)


def _value(node: Node, values: Mapping[str, Fraction], is_complex: bool) -> Any:
    import mpmath

    if node.value is not None:
        return mpmath.mpf(node.value.numerator) / node.value.denominator
    if node.kind == "symbol":
        share = values[node.name]
        return mpmath.mpf(share.numerator) / share.denominator
    if node.kind == "constant":
        return _constant(node.name, is_complex)
    if node.kind == "based":
        return _hidden(node.key)
    parts = [_value(part, values, is_complex) for part in node.parts]
    try:
        result = _applied(node, parts, is_complex)
    except (ZeroDivisionError, ValueError, OverflowError, mpmath.libmp.NoConvergence, TypeError) as error:
        raise _OutsideError from error
    if not is_complex and isinstance(result, mpmath.mpc):
        raise _OutsideError
    if mpmath.isnan(result) or mpmath.isinf(result):
        raise _OutsideError
    return result


def _constant(name: str, is_complex: bool) -> Any:
    import mpmath

    if name == "pi":
        return +mpmath.pi
    if name == "e":
        return +mpmath.e
    if name == "i" and is_complex:
        return mpmath.mpc(0, 1)
    if name == "infinity":
        return _hidden("infinity")
    raise _OutsideError


def _hidden(key: str) -> Any:
    """A number that stands for what is not computed; the same for the same key, and related to nothing else."""
    import mpmath

    word = hashlib.sha512(key.encode()).digest()
    return mpmath.mpf(int.from_bytes(word, "big")) / mpmath.mpf(2) ** 512 + 1


def _applied(node: Node, parts: list[Any], is_complex: bool) -> Any:
    import mpmath

    if node.kind == "sum":
        return mpmath.fsum(parts)
    if node.kind == "product":
        return mpmath.fprod(parts)
    if node.kind == "power":
        return _power(node, parts[0], parts[1], is_complex)
    name = node.name
    if name in ("f", "g"):
        return _hidden(name + ",".join(mpmath.nstr(part, 40) for part in parts))
    if name in ("max", "min"):
        return max(parts) if name == "max" else min(parts)
    x = parts[0]
    if name == "ln":
        if not is_complex and x <= 0:
            raise _OutsideError
        return mpmath.log(x)
    known = _FUNCTIONS.get(name)
    if known is None:
        return _hidden(name + ",".join(mpmath.nstr(part, 40) for part in parts))
    if abs(x) > 10**6 and name not in ("abs", "floor", "ceil", "arctan", "sgn", "Re", "Im"):
        return _hidden(node.key)
    return getattr(mpmath, known)(*parts)


_FUNCTIONS = {
    **{
        name: name
        for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "floor", "ceil")
    },
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arccot": "acot",
    "arcsec": "asec",
    "arccsc": "acsc",
    "abs": "fabs",
    "binom": "binomial",
    "factorial": "factorial",
    "sgn": "sign",
    "arg": "arg",
    "Re": "re",
    "Im": "im",
}


def _power(node: Node, base: Any, exponent: Any, is_complex: bool) -> Any:
    import mpmath

    if base == 0 and not (isinstance(exponent, mpmath.mpf) and exponent > 0):
        raise _OutsideError
    if base != 0:
        size = abs(exponent) * (abs(mpmath.log(abs(base), 10)) + 1)
        if size > MAX_DIGITS:
            return _hidden(node.key)  # too long for its last digits to count, so only itself equals it
    wanted = node.parts[1].value
    if not is_complex and base < 0 and wanted is not None and wanted.denominator % 2 == 1:
        root = (-base) ** (mpmath.mpf(wanted.numerator) / wanted.denominator)
        return root if wanted.numerator % 2 == 0 else -root
    if not is_complex and base < 0 and exponent != mpmath.floor(exponent):
        raise _OutsideError
    return base**exponent
