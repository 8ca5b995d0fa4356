"""The side of the program: loads it as a module, and answers for what is in it."""

from __future__ import annotations

import builtins
import sys

from . import plain, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME = "solution"
"""The module that a program is imported as."""


class Elsewhere:
    """An object of the tests, as the program sees it: it can be called and used, not looked into."""

    __slots__ = ("_number", "_peer")

    def __init__(self, peer: wire.Peer, number: int) -> None:
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_number", number)

    def __getattr__(self, name: str) -> Any:
        return self._peer.ask("attribute", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._peer.ask("set", self, name, value)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call it, there."""
        return self._peer.ask("call", self, arguments, keywords)


def _forward(special: str, operation: str, *, mirrored: bool = False) -> None:
    def method(self: Elsewhere, *operands: Any) -> Any:
        whole = (*operands, self) if mirrored else (self, *operands)
        return self._peer.ask("operate", operation, *whole)

    setattr(Elsewhere, special, method)


for _word in (*wire.CONVERSIONS, *wire.SIGNS, *wire.ITEMS, *wire.ORDER, *wire.ARITHMETIC, "eq", "ne"):
    _forward(f"__{_word.rstrip('_')}__", _word)
for _word in wire.ARITHMETIC:
    _forward(f"__r{_word.rstrip('_')}__", _word, mirrored=True)


class Program(wire.Peer):
    """The program's end of the conversation."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self.module: Any = None
        self._theirs: dict[int, Elsewhere] = {}
        self._kept: tuple[Any, ...] = ()
        self._result: Any = None

    def describe(self, value: Any) -> Any:
        """An object of the tests by its number, one of the program by its number, kind and class."""
        if type(value) is Elsewhere:
            return ("yours", value._number)
        if isinstance(value, BaseException):
            return ("error", *self.tell_error(value))
        if isinstance(value, type):
            return self._class(value)
        if type(value) is type(sys):
            return ("module", value.__name__)
        return ("object", self.number(value), self._kind(value), self._class(type(value)))

    def _kind(self, value: Any) -> str:
        kind = type(value).__name__
        if kind in ("coroutine", "function", "builtin_function_or_method", "method"):
            return "coroutine" if kind == "coroutine" else "function"
        return "plain" if plain.flat(value) is not None else "object"

    def _class(self, kind: type) -> Any:
        if getattr(builtins, kind.__name__, None) is kind:
            return ("builtin", kind.__name__)
        return (
            "class",
            self.number(kind),
            kind.__name__,
            tuple(self._class(base) for base in kind.__bases__),
        )

    def stand_in(self, description: Any) -> Any:
        """An object of the program by its number; one of the tests as `Elsewhere`."""
        whose, number, *_ = description
        if whose == "yours":
            return self.mine(number)
        if whose == "error":
            return Exception(*description[2])
        return self._theirs.setdefault(number, Elsewhere(self, number))

    def tell_error(self, error: BaseException) -> Any:
        """(class, arguments, text, attributes) of an exception."""
        try:
            text = str(error)
        except BaseException:
            text = ""
        try:
            self.encode(error.args)
            arguments = tuple(error.args)
            attributes = {str(name): value for name, value in vars(error).items()}
            self.encode(attributes)
        except BaseException:
            arguments, attributes = (text,), {}
        return (self._class(type(error)), arguments, text[:2000], attributes)

    def raise_again(self, told: Any) -> None:
        """Raise what the tests' own function raised, as far as it is of a built-in class."""
        name, arguments, text = told
        kind = getattr(builtins, name, RuntimeError)
        raise (
            kind(*arguments) if isinstance(kind, type) and issubclass(kind, Exception) else RuntimeError(text)
        )

    def serve(self, question: tuple[Any, ...]) -> Any:
        """What the tests may ask: to load the program, and everything of what is in it."""
        what, *rest = question
        if what == "load":
            return self._load(*rest)
        if what == "echo":
            return rest[0]
        if what == "name":
            [name] = rest
            space = vars(self.module)
            return (True, space[name]) if name in space else (False, None)
        if what == "call":
            return self._call(*rest)
        if what == "keep":
            self._kept = rest[0]
            return None
        if what == "run":
            self._result = rest[0](*self._kept)
            return None
        if what == "fetch":
            return self._result
        if what == "attribute":
            return getattr(rest[0], rest[1])
        if what == "set":
            return setattr(rest[0], rest[1], rest[2])
        if what == "assign":
            return setattr(self.module, rest[0], rest[1])
        if what == "flat":
            return plain.flat(rest[0])
        if what == "await":
            import asyncio

            return asyncio.run(rest[0])
        if what == "operate":
            value = wire.OPERATIONS[rest[0]](*rest[1:])
            return value if value is not NotImplemented else None
        raise wire.BrokenError(f"the question {what!r}")

    def _load(self, source: str) -> tuple[str, ...]:
        self.module = load(source, NAME)
        return tuple(name for name in vars(self.module) if not name.startswith("__"))

    def _call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, ...]:
        """(kind, result, changed): arguments that the call changed are told with their new content."""
        given = [*arguments, *keywords.values()]
        before = [self.encode(value) if _may_change(value) else None for value in given]
        result = function(*arguments, **keywords)
        changed = {
            i: value
            for i, (value, text) in enumerate(zip(given, before))  # noqa: B905
            if text is not None and self.encode(value) != text
        }
        for i, value in enumerate(given):
            if result is value and _may_change(value):
                return ("argument", i, changed)
        return ("value", result, changed)


def _may_change(value: Any) -> bool:
    return isinstance(value, list | dict | set | bytearray) or type(value).__name__ in (
        "deque",
        "array",
        "ndarray",
    )


def load(source: str, name: str) -> Any:
    """Run a program as the module `name`, from a file in the working folder as far as one can be written."""
    path = "solution.py"
    try:
        with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(source)
    except OSError:
        pass  # no room for it; it runs all the same
    module = type(sys)(name)
    module.__file__ = path
    sys.modules[name] = module
    exec(compile(source.removeprefix("\ufeff"), path, "exec", dont_inherit=True), module.__dict__)
    return module
