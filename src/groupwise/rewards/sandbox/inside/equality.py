"""When a function's result is the one that a case expects."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def same(given: Any, expected: Any, tolerance: float) -> bool:
    """Python's own equality, so that 2, 2.0 and True equal 2, 2 and 1; a tuple equals a list of the same items.

    Cases come from JSON, which has no tuples and no keys but text: {1: 2} equals {"1": 2}, as JSON writes it. Numbers
    may differ by `tolerance`, absolutely or relatively to what is expected, and NaN equals NaN. An object of the
    program is equal to nothing but the plain content it holds.
    """
    if isinstance(expected, list | tuple):
        if not isinstance(given, list | tuple) and not _holds(given, list):
            return False
        items = list(given)
        return len(items) == len(expected) and all(
            same(a, b, tolerance)
            for a, b in zip(items, expected)  # noqa: B905 - of one length
        )
    if isinstance(expected, dict):
        if not isinstance(given, dict):
            return bool(given == expected)
        if all(isinstance(key, str) for key in expected):
            named = {_as_json(key): value for key, value in given.items()}
            given = named if len(named) == len(given) else given
        return given.keys() == expected.keys() and all(
            same(given[k], v, tolerance) for k, v in expected.items()
        )
    if isinstance(expected, float) and isinstance(given, int | float):
        if expected != expected:
            return given != given
        if tolerance and abs(given - expected) <= tolerance * max(1.0, abs(expected)):
            return True
    return bool(given == expected)


def _as_json(key: Any) -> Any:
    """A dictionary's key as JSON writes it."""
    if key is None or type(key) is bool:
        return {None: "null", True: "true", False: "false"}[key]
    return repr(key) if type(key) in (int, float) else key


def _holds(given: Any, kind: type) -> bool:
    """An array of numpy's, or the program's own subclass of a list."""
    return type(given).__module__ == "numpy"
