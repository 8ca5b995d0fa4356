"""What tests use of pytest, for interpreters that have none: `raises`, `approx`, `mark.parametrize`, `fail`."""

from __future__ import annotations

import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class raises:  # noqa: N801 - spelled as pytest spells it
    """Expect an exception of these classes, whose text matches `match`."""

    def __init__(self, kinds: Any, *, match: str | None = None) -> None:
        self.kinds = kinds
        self.match = match
        self.value: BaseException | None = None

    def __enter__(self) -> raises:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if error is None:
            raise AssertionError(f"did not raise {self.kinds}")
        if not isinstance(error, self.kinds):
            return False
        if self.match is not None and re.search(self.match, str(error)) is None:
            raise AssertionError(f"{str(error)!r} does not match {self.match!r}")
        self.value = error
        return True


class approx:  # noqa: N801
    """Equal to a number, or to a list or dict of numbers, within 1e-6 relatively or 1e-12 absolutely."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None) -> None:
        self.expected = expected
        self.rel = 1e-6 if rel is None and abs is None else rel or 0.0
        self.abs = 1e-12 if abs is None else abs

    def __eq__(self, given: Any) -> bool:
        return self._near(given, self.expected)

    def __repr__(self) -> str:
        return f"approx({self.expected!r})"

    def _near(self, given: Any, expected: Any) -> bool:
        if isinstance(expected, list | tuple):
            return (
                isinstance(given, list | tuple)
                and len(given) == len(expected)
                and all(self._near(a, b) for a, b in zip(given, expected))  # noqa: B905 - of one length
            )
        if isinstance(expected, dict):
            return (
                isinstance(given, dict)
                and given.keys() == expected.keys()
                and all(self._near(given[key], expected[key]) for key in expected)
            )
        if not isinstance(given, int | float | complex) or not isinstance(expected, int | float | complex):
            return bool(given == expected)
        return given == expected or abs(given - expected) <= max(self.rel * abs(expected), self.abs)


class _Mark:
    def parametrize(self, names: str | list[str], rows: Any, **more: Any) -> Any:
        words = [word.strip() for word in names.split(",")] if isinstance(names, str) else list(names)
        sets = [dict(zip(words, row if len(words) > 1 else (row,))) for row in rows]  # noqa: B905

        def mark(function: Any) -> Any:
            before = getattr(function, "_parameter_sets", [{}])
            function._parameter_sets = [{**a, **b} for a in before for b in sets]
            return function

        return mark

    def __getattr__(self, name: str) -> Any:
        def mark(*arguments: Any, **keywords: Any) -> Any:
            alone = len(arguments) == 1 and not keywords and callable(arguments[0])
            return arguments[0] if alone else lambda function: function

        return mark


def fail(reason: str = "") -> None:
    """Fail this test."""
    raise AssertionError(reason)


def install() -> None:
    """Answer `import pytest` with this, where there is none."""
    module: Any = type(sys)("pytest")
    module.raises, module.approx, module.mark, module.fail = raises, approx, _Mark(), fail
    module.main = lambda *arguments, **keywords: 0
    sys.modules["pytest"] = module
