"""Source files as trees."""

from __future__ import annotations

import ast
from functools import cache


@cache
def parsed(text: str) -> ast.Module:
    """The tree of a text, made once; nobody changes it."""
    return ast.parse(text)
