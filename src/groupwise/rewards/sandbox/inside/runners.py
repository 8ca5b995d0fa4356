"""What pytest and unittest would find and run in the tests' names."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

OWN = "tests"


def found(names: dict[str, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Label and call of each test: functions named `test...`, methods of classes named `Test...`, unittest's cases."""
    unittest = sys.modules.get("unittest")
    for name, value in names.items():
        if getattr(value, "__module__", None) != OWN:
            continue
        if isinstance(value, type):
            if unittest is not None and issubclass(value, unittest.TestCase):
                yield from _cases(unittest, value)
            elif name.startswith("Test"):
                yield from _methods(value)
        elif name.startswith("test") and callable(value):
            yield from _calls(name, value)


def _calls(name: str, function: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """One call, or one for each set of parameters that `pytest.mark.parametrize` gave."""
    sets = getattr(function, "_parameter_sets", None)
    if sets is None:
        code = getattr(function, "__code__", None)
        needed = 0 if code is None else code.co_argcount - len(function.__defaults__ or ())
        if needed == 0:
            yield name, _awaited(function, {})
        return
    for i, keywords in enumerate(sets):
        yield f"{name}[{i}]", _awaited(function, keywords)


def _awaited(function: Any, keywords: dict[str, Any]) -> Callable[[], Any]:
    def run() -> None:
        result = function(**keywords)
        if hasattr(result, "__await__") and type(result).__name__ == "coroutine":
            import asyncio

            asyncio.run(result)

    return run


def _methods(kind: type) -> Iterator[tuple[str, Callable[[], Any]]]:
    for name in vars(kind):
        if name.startswith("test") and callable(getattr(kind, name)):
            yield f"{kind.__name__}.{name}", _method(kind, name)


def _method(kind: type, name: str) -> Callable[[], Any]:
    def run() -> None:
        instance = kind()
        if hasattr(instance, "setup_method"):
            instance.setup_method()
        method = getattr(instance, name)
        for keywords in getattr(method, "_parameter_sets", [{}]):
            method(**keywords)

    return run


def _cases(unittest: Any, kind: type) -> Iterator[tuple[str, Callable[[], Any]]]:
    for case in unittest.defaultTestLoader.loadTestsFromTestCase(kind):
        yield f"{kind.__name__}.{case._testMethodName}", _case(unittest, kind, case._testMethodName)


def _case(unittest: Any, kind: type, name: str) -> Callable[[], Any]:
    def run() -> None:
        result = unittest.TestResult()
        kind(name).run(result)
        told = [*result.failures, *result.errors]
        if told:
            last = " ".join(told[0][1].strip().splitlines()[-1:])
            raise (AssertionError if result.failures else RuntimeError)(last)
        if result.unexpectedSuccesses:
            raise AssertionError("a test that should fail did not")

    return run
