r"""math-verify, for golds that the grammar here does not know: sums, integrals, limits, unions of sets by name.

Guards before: the text is formulas only, short, of known characters, without towers of powers. Guards after: decimals
are handed over as fractions, so that its rounding to six places never meets one, and every set must match in full.
Runs in a worker process only, which has its own limits on time and memory; see `worker`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from groupwise.rewards.mathematics.nodes import UnreadableError
from groupwise.rewards.mathematics.reading import clean
from groupwise.rewards.mathematics.spelling import spell

MAX_LENGTH = 300
"""Longest formula that is handed over, in characters."""

_ALLOWED = re.compile(r"[A-Za-z0-9\s\xa0\\{}()\[\]+\-*/^_=<>|,.;:!&']+")
_KNOWN = re.compile(
    r"\\(?:sum|prod|int|iint|oint|lim|limits|to|infty|in|cup|cap|setminus|mathbb|frac|sqrt|cdot|pi|sin|cos|tan|cot|sec|csc|ln|log"
    r"|exp|le|ge|ne|d|partial|binom|det|arcsin|arccos|arctan|sinh|cosh|tanh|alpha|beta|gamma|delta|theta|lambda|mu|sigma|phi|omega"
    r"|emptyset|begin|end|rightarrow|\{|\}|\\|overline|vec|hat|pm|mp|circ|mod|pmod|ldots)(?![A-Za-z])|\\."
)
_SPECIAL = re.compile(r"\\(?:sum|prod|int|iint|oint|lim|cap|setminus|mathbb|det|vec)(?![A-Za-z])")
_TOWER = re.compile(r"\^\s*\{?[^{}]{0,40}\^")
_LONG_NUMBER = re.compile(r"\d{40}|\^\s*\{?\s*-?\d{4}")
_DECIMAL = re.compile(r"(?<![\d.])(\d{0,30})\.(\d{1,30})(?![\d.])")


def may_read(text: str) -> bool:
    """Whether a gold is worth asking about: a formula with something in it that the grammar here does not know."""
    spelled = spell(clean(text))
    return bool(_SPECIAL.search(spelled)) and _fault(spelled) is None


def _fault(spelled: str) -> str | None:
    if len(spelled) > MAX_LENGTH:
        return f"it is a formula of more than {MAX_LENGTH} characters"
    if not _ALLOWED.fullmatch(spelled) or "__" in spelled:
        return "it holds characters that formulas do not hold"
    if re.search(r"[A-Za-z]{4,}", re.sub(r"\\[A-Za-z]+|\\(?:begin|end)\{[a-z]+\}", " ", spelled)):
        return "it holds words"
    if re.sub(_KNOWN, "", spelled).count("\\"):
        return "it holds a command that is not known"
    if _TOWER.search(spelled) or _LONG_NUMBER.search(spelled):
        return "it holds a tower of powers or a number too long to compute"
    return None


def parse(text: str) -> Any:
    """The sympy expression of a formula.

    Raises:
        UnreadableError: math-verify does not know it either.
    """
    from math_verify.parser import parse_latex_cached

    spelled = spell(clean(text))
    fault = _fault(spelled)
    if fault is not None:
        raise UnreadableError(fault)
    exact = _DECIMAL.sub(_as_fraction, spelled.replace("\xa0", " "))
    try:
        return parse_latex_cached(exact)
    except Exception as error:  # the parser raises bare exceptions
        raise UnreadableError("neither this grammar nor math-verify can read it") from error


def _as_fraction(match: re.Match[str]) -> str:
    value = Fraction(int((match[1] or "0") + match[2]), 10 ** len(match[2]))
    return rf"{{\frac{{{value.numerator}}}{{{value.denominator}}}}}"


def _done(expression: Any) -> Any:
    """With its sums, integrals and limits worked out where sympy can."""
    try:
        return expression.doit()
    except Exception:
        return expression


def same(gold: str, answer: str) -> bool:
    """Whether math-verify finds the two equal. False where it cannot read the answer.

    Raises:
        UnreadableError: it cannot read the gold.
    """
    from math_verify.grader import sympy_expr_eq

    right = parse(gold)
    try:
        said = parse(answer)
        pairs = [(right, said), (_done(right), _done(said))]
        return any(sympy_expr_eq(a, b, float_rounding=15, numeric_precision=30) for a, b in pairs)
    except Exception:  # whatever sympy raises on what it was handed: it is not shown to be equal
        return False
