"""The program's objects as the tests see them.

The rules that keep an object from deciding about itself:

- It never equals plain data on its own word. Where it holds a plain list, dict or set (an instance of a subclass), that
  is fetched and compared here.
- Operators of the program's classes are asked only for classes that the tests name. They may not turn a plain operand,
  which may be the expected answer, into a plain result.
- Two objects of such classes are equal when the program says so, unless it says so of anything whatever.
- An object of a class that the tests do not name gives as many items as it says it has, or is no answer.
- A StopIteration of a function is an error, not the end of the `map` that called it.
"""

from __future__ import annotations

import builtins

from . import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class IncomparableError(TypeError):
    """The tests compared or combined what the program gave in a way that would leave the verdict to the program."""


class Class(type):
    """A class of the program. Calling it makes an object there."""

    _peer: Any
    _number: int
    _named: bool

    def __call__(cls, *arguments: Any, **keywords: Any) -> Any:
        """Make an object, there."""
        return cls._peer.call(cls, arguments, keywords)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name.endswith("__") and name not in ("__doc__", "__name__"):
            raise AttributeError(name)
        return cls._peer.ask("attribute", cls, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        if name in ("_named", "_peer", "_number") or name.startswith("__"):
            type.__setattr__(cls, name, value)
        else:
            cls._peer.ask("set", cls, name, value)

    def __iter__(cls) -> Any:
        return _iterator(cls)

    def __len__(cls) -> int:
        return int(cls._peer.ask("operate", "len", cls))

    def __getitem__(cls, key: Any) -> Any:
        return cls._peer.ask("operate", "getitem", cls, key)


class Object(metaclass=Class):
    """An object of the program."""

    _peer: Any
    _number: int
    _named = False
    _mixed = False
    """It came of an operator with a plain operand."""

    def __getattr__(self, name: str) -> Any:
        if name in (
            "__class__",
            "__dict__",
            "__array_interface__",
            "__array_struct__",
            "__array__",
            "__array_priority__",
        ):
            raise AttributeError(name)
        return self._peer.ask("attribute", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._peer.ask("set", self, name, value)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call it, there."""
        return self._peer.call(self, arguments, keywords)

    def __iter__(self) -> Any:
        found = _iterator(self)
        if _asks(self):
            return found
        try:
            length = len(self)
        except (TypeError, AttributeError):
            return found  # a generator, say
        return _all_of(found, length)

    def __next__(self) -> Any:
        return self._peer.ask("operate", "next", self)

    def __await__(self) -> Any:
        return self._peer.ask("await", self)
        yield

    def __enter__(self) -> Any:
        return self._peer.call(self._peer.ask("attribute", self, "__enter__"), (), {})

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        known = None if kind is None else next(k for k in kind.__mro__ if k.__module__ == "builtins")
        ends = self._peer.ask("attribute", self, "__exit__")
        swallowed = self._peer.call(ends, (known, error, None), {})
        # An error of the tests may be swallowed where they ask for that, but never a check that did not hold.
        lost = isinstance(error, AssertionError | IncomparableError) or not isinstance(error, Exception)
        return bool(swallowed) and not lost

    def __contains__(self, item: Any) -> bool:
        if _asks(self):
            return bool(self._peer.ask("operate", "contains", self, item))
        return any(item is mine or item == mine for mine in self)

    def __eq__(self, other: Any) -> bool:
        if self is other:
            return True
        if isinstance(other, Object):
            if not (_asks(self) or _asks(other)):
                return False
            return self._says_equal(other) and not self._says_equal(_Nothing())
        plain = self._peer.ask("flat", self)
        return plain is not None and bool(plain == other)

    def _says_equal(self, other: Any) -> bool:
        return self._peer.ask("operate", "eq", self, other) is True

    def __ne__(self, other: Any) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return self._peer.ask("operate", "hash", self) if _asks(self) else hash((Object, self._number))


def _iterator(value: Any) -> Any:
    found = value._peer.ask("operate", "iter", value)
    return found if isinstance(found, Object) else iter(found)


def _all_of(items: Any, length: int) -> Any:
    """The items, which have to be `length`; an empty one of two would leave nothing to check."""
    given = 0
    for item in items:
        given += 1
        yield item
    if given != length:
        raise IncomparableError(f"an object of the program has {length} items by its word, and gives {given}")


class _Nothing:
    """Equal to nothing."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return False


def _asks(value: Any) -> bool:
    """True where the tests name the class of this object, so that its operators are what they are about."""
    return any(kind.__dict__.get("_named") for kind in type(value).__mro__)


def _unary(special: str, operation: str, *, to_number: bool) -> None:
    def method(self: Object, *more: Any) -> Any:
        if to_number and object.__getattribute__(self, "_mixed"):
            raise IncomparableError(
                f"{operation}() of what an operator of the program made with a plain value"
            )
        return self._peer.ask("operate", operation, self, *more)

    type.__setattr__(Object, special, method)


def _binary(special: str, operation: str, *, mirrored: bool = False) -> None:
    def method(self: Object, other: Any) -> Any:
        plain = not isinstance(other, Object)
        compares = operation in wire.ORDER
        if not _asks(self) or (plain and compares):
            raise IncomparableError(
                f"{operation} between an object of the program and {type(other).__name__}"
            )
        pair = (other, self) if mirrored else (self, other)
        result = self._peer.ask("operate", operation, *pair)
        if plain and not isinstance(result, Object):
            raise IncomparableError(
                f"{operation} of an object of the program and a plain value gave a plain value"
            )
        if plain:
            object.__setattr__(result, "_mixed", True)
        return result

    type.__setattr__(Object, special, method)


for _word in (
    "len",
    "str",
    "repr",
    "bool",
    "neg",
    "pos",
    "invert",
    "getitem",
    "setitem",
    "delitem",
    "reversed",
):
    _unary(f"__{_word}__", _word, to_number=False)
for _word in ("int", "float", "complex", "abs", "round", "index"):
    _unary(f"__{_word}__", _word, to_number=True)
for _word in wire.ARITHMETIC:
    _binary(f"__{_word.rstrip('_')}__", _word)
    _binary(f"__r{_word.rstrip('_')}__", _word, mirrored=True)
for _word in wire.ORDER:
    _binary(f"__{_word}__", _word)


class Tests(wire.Peer):
    """The tests' end of the conversation."""

    def __init__(self, fd: int, *, own_modules: frozenset[str]) -> None:
        super().__init__(fd)
        self._own_modules = own_modules
        self._classes: dict[int, type] = {}
        self._objects: dict[int, Any] = {}
        self.used = 0
        """How often the tests have asked something of the program."""
        self._lost: Exception | None = None
        self._stopped: list[StopIteration] = []

    def name(self, name: str) -> Any:
        """A global name of the program.

        Raises:
            KeyError: it has none of this name.
        """
        there, value = self.ask("name", name)
        if not there:
            raise KeyError(name)
        self.used += 1
        if isinstance(value, type) and value.__dict__.get("_peer") is self:
            value._named = True  # type: ignore[attr-defined]
        return value

    def call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call a function of the program; what it changed in its arguments is changed here."""
        try:
            kind, result, changed = self.ask("call", function, arguments, keywords)
        except StopIteration as error:
            self._stopped.append(error)
            raise
        given = [*arguments, *keywords.values()]
        for i, value in changed.items():
            _change(given[i], value)
        return given[result] if kind == "argument" else result

    def raise_lost(self) -> None:
        """Raise what went unseen: the first check that did not hold in a function of the tests that the program called,
        and a StopIteration of the program that ended a loop over `map` or the like.
        """
        lost, self._lost = self._lost, None
        stopped, self._stopped = self._stopped, []
        if lost is not None:
            raise lost
        for error in stopped:
            if not _met_a_handler(error):
                raise RuntimeError("a function of the program raised StopIteration")

    def describe(self, value: Any) -> Any:
        """An object of the program by its number; one of the tests only as far as `serve` lets it be used."""
        if isinstance(value, BaseException):
            return ("error", type(value).__name__, value.args)
        if isinstance(value, Object):
            return ("yours", object.__getattribute__(value, "_number"))
        if isinstance(value, type) and value.__dict__.get("_peer") is self:
            return ("yours", value.__dict__["_number"])
        return ("theirs", self.number(value))

    def stand_in(self, description: Any) -> Any:
        """What stands here for something of the program."""
        what, *rest = description
        if what == "yours":
            return self.mine(rest[0])
        if what == "class":
            return self._class(description)
        if what == "builtin":
            return self._builtin(rest[0])
        if what == "error":
            return self._error(rest)
        if what == "module":
            return _module(rest[0])
        number, kind, of_class = rest
        if number not in self._objects:
            value = object.__new__(self._class(of_class))
            object.__setattr__(value, "_number", number)
            self._objects[number] = _coroutine(value) if kind == "coroutine" else value
        return self._objects[number]

    def _class(self, description: Any) -> Any:
        if description[0] == "builtin":
            return _new_class(description[1], (Object,), {"_peer": self, "_number": -1})
        _, number, name, bases = description
        if number not in self._classes:
            self._classes[number] = self._make(number, name, bases)
        return self._classes[number]

    def _make(self, number: int, name: str, bases: tuple[Any, ...]) -> type:
        errors = tuple(base for base in map(self._exception, bases) if base is not None)
        if errors:
            return type(name, errors, {"_peer": self, "_number": number})
        own = tuple(self._class(base) for base in bases if base[0] == "class") or (Object,)
        return _new_class(name, own, {"_peer": self, "_number": number})

    def _exception(self, description: Any) -> type | None:
        """The class here for a base that is an exception; None for another."""
        kind = self._builtin(description[1]) if description[0] == "builtin" else self._class(description)
        return kind if isinstance(kind, type) and issubclass(kind, BaseException) else None

    def _builtin(self, name: str) -> Any:
        kind = getattr(builtins, name, None)
        if not isinstance(kind, type):
            raise ValueError(f"no class {name!r}")
        return kind

    def _error(self, told: Any) -> BaseException:
        of_class, arguments, text, attributes = told
        kind = self._exception(of_class) or Exception
        try:
            error: BaseException = kind.__new__(kind, *arguments)
            error.args = tuple(arguments)
            error.__dict__.update(attributes)
        except Exception:
            error = Exception(text)
        return error

    def raise_again(self, told: Any) -> None:
        """Raise what the program raised, of the class that the tests know."""
        error = self._error(told)
        error.__dict__["_of_program"] = True
        raise error

    def tell_error(self, error: BaseException) -> Any:
        """(name, arguments, text) of an exception of the tests' own functions."""
        return (type(error).__name__, (str(error)[:500],), str(error)[:500])

    def serve(self, question: tuple[Any, ...]) -> Any:
        """What the program may ask of objects that the tests gave it: to call and use them, not to look into them."""
        what, *rest = question
        if what == "call":
            function, arguments, keywords = rest
            if isinstance(function, Object | Class):
                raise TypeError("it is the program's own")
            try:
                return function(*arguments, **keywords)
            except (AssertionError, IncomparableError) as error:
                if not error.__dict__.get("_of_program"):
                    self._lost = self._lost or error  # the program may swallow it
                raise
        if what == "operate" and rest[0] in wire.OPERATIONS:
            value = wire.OPERATIONS[rest[0]](*rest[1:])
            return None if value is NotImplemented else value
        if what in ("attribute", "set"):
            target, name, *value = rest
            if not isinstance(name, str) or name.startswith("_") or not self._may_look(target):
                raise AttributeError(f"{name!r} of an object of the tests cannot be used from the program")
            return setattr(target, name, value[0]) if value else getattr(target, name)
        raise AttributeError("an object of the tests cannot be used like this from the program")

    def _may_look(self, target: Any) -> bool:
        """Attributes of the tests' own classes and of streams; functions, generators and frames hold everything."""
        kind = target if isinstance(target, type) else type(target)
        return kind.__module__ in self._own_modules or kind.__module__ in ("io", "_io")


def _met_a_handler(error: BaseException) -> bool:
    """Whether the outermost code of Python that an exception was seen in, above `Tests.call`, has a `try` or a `with`.

    What C code swallows, as `map` does, is seen by no more of Python's.
    """
    trace = error.__traceback__
    code = trace.tb_frame.f_code if trace is not None else None
    return code is not None and code is not Tests.call.__code__ and bool(code.co_exceptiontable)


def _new_class(name: str, bases: tuple[type, ...], content: dict[str, Any]) -> type:
    made: type = type.__call__(Class, name, bases, content)
    return made


def _change(old: Any, new: Any) -> None:
    """Give a mutable value the content of another of its kind, keeping it and the containers inside it."""
    if isinstance(old, list) and isinstance(new, list):
        kept = [_kept(a, b) for a, b in zip(old, new)]  # noqa: B905 - as far as both go
        old[:] = kept + new[len(kept) :]
    elif isinstance(old, dict) and isinstance(new, dict):
        content = {key: _kept(old[key], value) if key in old else value for key, value in new.items()}
        old.clear()
        old.update(content)
    elif isinstance(old, set) and isinstance(new, set):
        old.clear()
        old.update(new)
    elif type(old) is type(new) and hasattr(old, "__setitem__"):
        if type(old).__name__ == "deque":
            old.clear()
            old.extend(new)
        else:
            old[:] = new


def _kept(old: Any, new: Any) -> Any:
    if type(old) is type(new) and isinstance(old, list | dict | set):
        _change(old, new)
        return old
    return new


def _module(name: str) -> Any:
    """The tests' own module of the name that the program imported; a program's word cannot stand in for it."""
    __import__(name)
    import sys

    return sys.modules[name]


async def _coroutine(value: Any) -> Any:
    return await value
