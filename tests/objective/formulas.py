"""Evaluates the formulas that `groupwise explain` prints, as written, so that they cannot say other than the code.

A formula is read as people read it: `rho A` is a product, `clip(x, a, b)`, `min(a, b)` and `exp` are functions, and
what follows a semicolon or two spaces is a definition or a remark.
"""

import io
import re
import tokenize
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

FUNCTIONS = {
    "exp": np.exp,
    "min": np.minimum,
    "clip": np.clip,
    "sign": np.sign,
    "sg": lambda x: x,
    "mean": np.mean,
    "sum": np.sum,
}


def product_signs(text: str, functions: Collection[str] = FUNCTIONS) -> str:
    """Python for an expression in which neighbours are factors: `rho (exp(d) - 1)` to `rho * (exp(d) - 1)`."""
    tokens = [
        t
        for t in tokenize.generate_tokens(io.StringIO(text).readline)
        if t.type in (tokenize.NAME, tokenize.NUMBER, tokenize.OP)
    ]
    written: list[str] = []
    for before, token in zip([None, *tokens], tokens, strict=False):
        if before is not None:
            ended = before.type in (tokenize.NAME, tokenize.NUMBER) or before.string == ")"
            begins = token.type in (tokenize.NAME, tokenize.NUMBER) or token.string == "("
            called = before.string in functions and token.string == "("
            if ended and begins and not called:
                written.append("*")
        written.append({"^": "**"}.get(token.string, token.string))
    return " ".join(written)


def right_side(formula: str) -> str:
    """The expression of `A_i = expression,  definitions` alone."""
    first = re.split(r";|,  ", formula)[0]
    return first.split("=", 1)[1] if re.match(r"\s*\w+ =", first) else first


def value(formula: str, names: Mapping[str, Any], functions: Mapping[str, Any] | None = None) -> Any:
    """The number (or array) that a formula gives for its names."""
    every = {**FUNCTIONS, **(functions or {})}
    code = product_signs(right_side(formula), every)
    return eval(code, {"__builtins__": {}, **every, **names})
