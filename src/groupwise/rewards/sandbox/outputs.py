"""When what a script wrote is what was asked for."""

from __future__ import annotations

import math


def same_output(given: str, expected: str, *, tolerance: float = 0.0) -> bool:
    """Line by line, without what cannot be seen: blanks at the ends of lines, blank lines at the end, kind of line end.

    With a `tolerance` above 0, words that are both numbers may differ by it, absolutely or relatively to the expected
    one, and lines are then compared word by word.
    """
    ours, theirs = _lines(given), _lines(expected)
    if ours == theirs:
        return True
    if not tolerance or len(ours) != len(theirs):
        return False
    return all(_near(a.split(), b.split(), tolerance) for a, b in zip(ours, theirs, strict=True))


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _near(ours: list[str], theirs: list[str], tolerance: float) -> bool:
    return len(ours) == len(theirs) and all(
        a == b or _number_near(a, b, tolerance) for a, b in zip(ours, theirs, strict=True)
    )


def _number_near(given: str, expected: str, tolerance: float) -> bool:
    try:
        a, b = float(given), float(expected)
    except ValueError:
        return False
    return math.isfinite(a) and math.isfinite(b) and abs(a - b) <= tolerance * max(1.0, abs(b))
