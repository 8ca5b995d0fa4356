"""The side of the tests: runs them against the program, which is elsewhere, and says what came of it."""

from __future__ import annotations

import sys

from . import objects, wire
from .program import NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Iterator
    from typing import Any

NOTHING_CHECKED = "the tests check nothing of the program"
UNPARSABLE = "the tests are no Python"
_RAISES = ("raises", "assertRaises", "assertRaisesRegex", "warns", "assertWarns")
OWN = "tests"
"""The module that the tests run as."""


class _Names(dict):  # type: ignore[type-arg]
    """The tests' global names: their own, then the program's, then Python's.

    A name of Python's own (`abs`, `sorted`, `isinstance`) is Python's, though the program may have one like it, unless
    it is what the tests are about.
    """

    def __init__(self, peer: objects.Tests, wanted: str | None) -> None:
        super().__init__(__name__=OWN, __builtins__=__builtins__)
        self._peer = peer
        self._wanted = wanted

    def __missing__(self, name: str) -> Any:
        if name == self._wanted:
            try:
                return self._peer.name(name)
            except KeyError:  # which would leave Python's own of this name to be found
                raise NameError(f"the program has no {name!r}") from None
        if name in vars(_builtins()):
            raise KeyError(name)
        return self._peer.name(name)


def _builtins() -> Any:
    return sys.modules["builtins"]


class _Solution(type(sys)):  # type: ignore[misc]
    """The module `solution` within the tests."""

    def __init__(self, peer: objects.Tests) -> None:
        super().__init__(NAME)
        self.__dict__["_peer"] = peer
        self.__dict__["__path__"] = []

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_peer"].name(name)
        except KeyError:
            raise AttributeError(f"the program has no {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        else:
            self.__dict__["_peer"].ask("assign", name, value)


class _FailedError(Exception):
    """A check did not hold."""


class Run:
    """One program against its tests."""

    def __init__(self, fd: int, job: dict[str, Any]) -> None:
        self.job = job
        self.peer = objects.Tests(fd, own_modules=frozenset({OWN}))
        self.checks = 0
        self.passed = 0
        self.total = 0
        self.problem: tuple[str, str] | None = None

    def verdict(self) -> dict[str, Any]:
        """`outcome`, `passed`, `total` and `detail`."""
        try:
            self._everything()
        except BaseException as error:
            self._note("error", said(error))
        if self.problem is None and (self.total == 0 or self.peer.used == 0):
            self._note("error", NOTHING_CHECKED)
        outcome, detail = self.problem or ("pass", "")
        return {"outcome": outcome, "passed": self.passed, "total": self.total, "detail": detail[:600]}

    def _everything(self) -> None:
        units = self._function_cases() if self.job["mode"] == "functions" else self._units()
        try:
            first = next(units, None)
            self.peer.ask("load", self.job["program"])
        except (wire.ClosedError, wire.BrokenError):
            return self._note("error", "the program ended while it was loaded")
        while first is not None:
            if not self._unit(*first) and self.job["stop"]:
                return None
            first = next(units, None)
        return None

    def _note(self, outcome: str, detail: str) -> None:
        if self.problem is None:
            self.problem = (outcome, detail)

    def _unit(self, label: str, run: Callable[[], Any], counts: bool) -> bool:
        """Run one unit of the tests; False where it did not hold. `counts` is False for what only prepares."""
        before = self.checks
        try:
            run()
            self.peer.raise_lost()
        except (AssertionError, _FailedError, objects.IncomparableError) as error:
            of_program = getattr(error, "_of_program", False)
            self.total += 1
            self._note("error" if of_program else "fail", f"{label}: {said(error)}")
            return False
        except (wire.ClosedError, wire.BrokenError) as error:
            self.total += 1
            self._note("error", f"{label}: the program ended or sent nonsense {error}".rstrip())
            return False
        except BaseException as error:
            self.total += 1
            self._note("error", f"{label}: {said(error)}")
            return False
        if counts or self.checks > before:
            self.total += 1
            self.passed += 1
        return True

    def _units(self) -> Iterator[tuple[str, Callable[[], Any], bool]]:
        """Each top-level statement, then what test runners would find: functions, classes, HumanEval's `check`."""
        import ast

        try:
            tree = ast.parse(self.job["tests"])
        except (SyntaxError, ValueError) as error:
            self._note("error", f"{UNPARSABLE}: {said(error)}")
            return
        has_check = any(isinstance(node, ast.Assert | ast.Raise | ast.Call) for node in ast.walk(tree))
        if not has_check:
            return
        tree = ast.fix_missing_locations(_prepare(tree))
        names = _Names(self.peer, self.job["entry_point"])
        names["__count__"] = self._count
        module = type(sys)(OWN)
        sys.modules[OWN] = module
        sys.modules[NAME] = _Solution(self.peer)
        if "pytest" in self.job["tests"]:
            _have_pytest()
        yield "the program", lambda: None, False
        flags = 0
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                import __future__

                for alias in node.names:
                    flags |= getattr(__future__, alias.name).compiler_flag
                continue
            code = compile(ast.Module([node], []), "tests", "exec", flags=flags, dont_inherit=True)
            yield f"line {node.lineno}: {_line(self.job['tests'], node)}", _run(code, names), False
        module.__dict__.update(names)
        yield from self._found(names, {node.name for node in tree.body if isinstance(node, ast.FunctionDef)})

    def _found(
        self, names: dict[str, Any], called: set[str]
    ) -> Iterator[tuple[str, Callable[[], Any], bool]]:
        from . import runners

        wanted = self.job["entry_point"]
        if wanted and "check" in called and "candidate" in _arguments(names.get("check")):
            yield "check", lambda: names["check"](function_of(self.peer, wanted)), False
        for label, run in runners.found(dict(names)):
            yield label, self._counted(run), True

    def _counted(self, run: Callable[[], Any]) -> Callable[[], Any]:
        def counted() -> None:
            self.checks += 1
            run()

        return counted

    def _count(self) -> None:
        self.checks += 1

    def _function_cases(self) -> Iterator[tuple[str, Callable[[], Any], bool]]:
        """Each case: a function, its arguments and what it should give."""
        yield "the program", lambda: None, False
        for i, case in enumerate(self.job["tests"]):
            yield f"case {i}", self._case(case), True

    def _case(self, case: dict[str, Any]) -> Callable[[], Any]:
        def run() -> None:
            from . import equality

            given = function_of(self.peer, case["function"])(*case["args"], **case["kwargs"])
            if not equality.same(given, case["expected"], self.job["tolerance"]):
                raise _FailedError(f"gave {short(given)}, not {short(case['expected'])}")

        return run


def function_of(peer: objects.Tests, name: str) -> Any:
    """What the tests are about: a function; `Class.method` or `Class().method`, of an object made now; or, as LeetCode
    and those that took over its form have it, a method of `Solution` where the program has no such function.
    """
    first, dot, method = name.replace("()", "").partition(".")
    try:
        found = peer.name(first)
        return getattr(found(), method) if dot else found
    except KeyError:
        pass
    try:
        if not dot:
            return getattr(peer.name("Solution")(), first)
    except (KeyError, AttributeError):
        pass
    raise NameError(f"the program has no {first!r}")


def _prepare(tree: ast.Module) -> ast.Module:
    """Count each check as it is made, and leave `from solution import *` out, since every name is found anyway."""
    import ast

    def counted(test: ast.expr) -> ast.expr:
        call = ast.Call(ast.Name("__count__", ast.Load()), [], [])  # gives None
        return ast.copy_location(ast.BoolOp(ast.Or(), [call, test]), test)

    class Prepare(ast.NodeTransformer):
        def visit_Assert(self, node: ast.Assert) -> ast.Assert:
            node.test = counted(node.test)
            return node

        def visit_If(self, node: ast.If) -> ast.If:
            self.generic_visit(node)
            if any(isinstance(inner, ast.Raise) for inner in ast.walk(node)):
                node.test = counted(node.test)
            return node

        def visit_With(self, node: ast.With) -> ast.With:
            self.generic_visit(node)
            for item in node.items:
                made = item.context_expr
                if isinstance(made, ast.Call) and ast.unparse(made.func).endswith(_RAISES):
                    item.context_expr = counted(made)
            return node

        def visit_Try(self, node: ast.Try) -> ast.Try:
            self.generic_visit(node)
            if node.handlers and any(isinstance(inner, ast.Assert | ast.Raise) for inner in node.body):
                counts = ast.Expr(ast.Call(ast.Name("__count__", ast.Load()), [], []))
                node.body.insert(0, ast.copy_location(counts, node))
            return node

        def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
            whole = node.module == NAME and any(alias.name == "*" for alias in node.names)
            return ast.copy_location(ast.Pass(), node) if whole else node

    prepared: ast.Module = Prepare().visit(tree)
    return prepared


def _have_pytest() -> None:
    try:
        import pytest  # noqa: F401
    except ImportError:
        from . import stand_in

        stand_in.install()


def _run(code: Any, names: dict[str, Any]) -> Callable[[], Any]:
    return lambda: exec(code, names)


def _arguments(function: Any) -> tuple[str, ...]:
    code = getattr(function, "__code__", None)
    return code.co_varnames[: code.co_argcount] if code is not None else ()


def _line(source: str, node: ast.stmt) -> str:
    lines = source.splitlines()
    return " ".join(lines[node.lineno - 1].split())[:120] if node.lineno <= len(lines) else ""


def said(error: BaseException) -> str:
    """An exception on one line."""
    try:
        text = " ".join(str(error).split())
    except BaseException:
        text = ""
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__


def short(value: Any) -> str:
    """A value in 80 characters at most."""
    try:
        text = repr(value)
    except BaseException:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."
