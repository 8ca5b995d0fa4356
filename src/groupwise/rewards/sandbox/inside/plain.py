"""Plain data as text and back, for values that cross from the program to the tests.

Nothing that is read here can run code, whoever wrote it: there are numbers, texts, containers, a fixed list of types of
the standard library, and descriptions of objects that stay where they are. `pickle` and `marshal` promise no such thing
for hostile data, and importing `json` costs more than starting the interpreter.
"""

from __future__ import annotations

import builtins
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_SCALARS = {None: "N", True: "T", False: "F", Ellipsis: "E"}
_CONTAINERS: dict[type, str] = {list: "l", tuple: "t", set: "s", frozenset: "z"}
_MAKE = {"l": list, "t": tuple, "s": set, "z": frozenset}

_KNOWN: dict[tuple[str, str], Callable[[Any], tuple[Any, ...]]] = {
    ("builtins", "range"): lambda v: (v.start, v.stop, v.step),
    ("builtins", "slice"): lambda v: (v.start, v.stop, v.step),
    ("builtins", "complex"): lambda v: (v.real, v.imag),
    ("builtins", "bytearray"): lambda v: (bytes(v),),
    ("fractions", "Fraction"): lambda v: (v.numerator, v.denominator),
    ("decimal", "Decimal"): lambda v: (str(v),),
    ("collections", "Counter"): lambda v: (dict(v),),
    ("collections", "OrderedDict"): lambda v: (list(v.items()),),
    ("collections", "deque"): lambda v: (list(v), v.maxlen),
    ("array", "array"): lambda v: (v.typecode, v.tolist()),
    ("datetime", "date"): lambda v: (v.year, v.month, v.day),
    ("datetime", "timedelta"): lambda v: (v.days, v.seconds, v.microseconds),
    ("uuid", "UUID"): lambda v: (str(v),),
    ("pathlib", "PosixPath"): lambda v: (str(v),),
    ("pathlib", "PurePosixPath"): lambda v: (str(v),),
}
"""Types of the standard library that cross as themselves, with what their constructor takes."""


def encode(value: Any, other: Callable[[Any], Any]) -> str:
    """The value as text.

    Instances of subclasses of numbers, texts and tuples cross as the plain value they hold. So does a numpy scalar,
    and a numpy array crosses as an array.

    Args:
        value: anything.
        other: asked about what is not plain; gives a plain description that `decode` hands to its own `other`.

    Raises:
        RecursionError: it is nested too deeply, or holds itself.
    """
    out: list[str] = []
    _write(value, out, other)
    return "".join(out)


def _write(value: Any, out: list[str], other: Callable[[Any], Any]) -> None:
    kind = type(value)
    if kind is int:
        out.append(f"i{value:x};")
    elif kind is str:
        out.append(f"c{len(value):x};{value}")
    elif kind is bool or value is None or value is Ellipsis:
        out.append(_SCALARS[value])
    elif kind is float:
        out.append(f"f{value!r};")
    elif kind in _CONTAINERS:
        _write_items(_CONTAINERS[kind], list(value), out, other)
    elif kind is dict:
        _write_dict(value, out, other)
    elif kind is bytes:
        out.append(f"b{len(value):x};{value.decode('latin-1')}")
    else:
        _write_other(value, kind, out, other)


def _write_items(tag: str, items: list[Any], out: list[str], other: Callable[[Any], Any]) -> None:
    kinds = (
        set(map(type, items)) if len(items) > 8 else None
    )  # long lists of numbers are common, slow one by one
    if kinds == {int}:
        out.append(f"I{tag}{' '.join([f'{item:x}' for item in items])};")
        return
    if kinds == {float}:
        out.append(f"R{tag}{' '.join(map(repr, items))};")
        return
    out.append(f"{tag}{len(items):x};")
    for item in items:
        _write(item, out, other)


def _write_dict(value: dict[Any, Any], out: list[str], other: Callable[[Any], Any]) -> None:
    out.append(f"d{len(value):x};")
    for key, item in list(value.items()):
        _write(key, out, other)
        _write(item, out, other)


def _write_other(value: Any, kind: type, out: list[str], other: Callable[[Any], Any]) -> None:
    place = (kind.__module__, kind.__qualname__)
    if place in _KNOWN:
        out.append("x")
        _write((*place, _KNOWN[place](value)), out, other)
    elif place == ("collections", "defaultdict"):
        _write_dict(value, out, other)
    elif place in (("datetime", "datetime"), ("datetime", "time")):
        out.append("x")
        _write((*place, (value.isoformat(),)), out, other)
    elif _is_builtin(value):
        out.append("k")
        _write(value.__name__, out, other)
    elif isinstance(value, tuple) and hasattr(kind, "_fields"):
        out.append("n")
        _write((kind.__name__, tuple(kind._fields), tuple(value)), out, other)
    elif kind.__module__ == "numpy" and hasattr(value, "tolist"):
        if value.ndim == 0:
            _write(value.item(), out, other)
        else:
            out.append("x")
            _write(("numpy", "ndarray", (value.dtype.str, value.shape, value.ravel().tolist())), out, other)
    elif (base := _plain_base(value)) is not None:
        _write(base, out, other)
    else:
        out.append("o")
        _write(other(value), out, other)


def _is_builtin(value: Any) -> bool:
    # By its kind first: to look at an attribute of an object that is elsewhere is to ask for it.
    return isinstance(value, type | type(len)) and getattr(builtins, value.__name__, None) is value


def _plain_base(value: Any) -> Any:
    """The plain value that an instance of a subclass holds; None where there is none."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__index__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, complex):
        return complex(value.real, value.imag)
    if isinstance(value, bytes):
        return bytes.__getitem__(value, slice(None))
    if isinstance(value, tuple):
        return tuple.__getitem__(value, slice(None))
    if isinstance(value, frozenset):
        return frozenset.copy(value)
    return None


def flat(value: Any) -> Any:
    """The plain list, dict or set that an instance of a subclass of one holds; None where there is none."""
    if isinstance(value, list):
        return list.__getitem__(value, slice(None))
    if isinstance(value, dict):
        return dict(dict.items(value))
    if isinstance(value, set):
        return set.copy(value) if type(value) is set else set(set.__iter__(value))
    return None


def decode(text: str, other: Callable[[Any], Any]) -> Any:
    """The value that `encode` wrote.

    Raises:
        ValueError: it is not what `encode` writes.
    """
    reader = _Reader(text, other)
    try:
        value = reader.value()
    except (
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
        OverflowError,
        ArithmeticError,
        ImportError,
    ) as error:
        raise ValueError(f"not a value: {type(error).__name__}: {error}") from None
    if reader.at != len(text):
        raise ValueError("not a value: something follows it")
    return value


class _Reader:
    """Reads one value after another from a text."""

    __slots__ = ("at", "other", "text")

    def __init__(self, text: str, other: Callable[[Any], Any]) -> None:
        self.text = text
        self.at = 0
        self.other = other

    def until_mark(self) -> str:
        end = self.text.index(";", self.at)
        word = self.text[self.at : end]
        self.at = end + 1
        return word

    def characters(self) -> str:
        count = int(self.until_mark(), 16)
        end = self.at + count
        if count < 0 or end > len(self.text):
            raise ValueError("not a value: it is cut off")
        word = self.text[self.at : end]
        self.at = end
        return word

    def value(self) -> Any:
        tag = self.text[self.at : self.at + 1]
        self.at += 1
        if tag == "i":
            return int(self.until_mark(), 16)
        if tag == "c":
            return self.characters()
        if tag == "f":
            return float(self.until_mark())
        if tag in _MAKE:
            return _MAKE[tag]([self.value() for _ in range(int(self.until_mark(), 16))])
        if tag in ("I", "R"):
            make = _MAKE[self.text[self.at]]
            self.at += 1
            words = self.until_mark().split()
            return make([int(word, 16) for word in words] if tag == "I" else map(float, words))
        if tag == "d":
            return {self.value(): self.value() for _ in range(int(self.until_mark(), 16))}
        if tag == "b":
            return self.characters().encode("latin-1")
        if tag in "NTFE" and tag:
            return {"N": None, "T": True, "F": False, "E": Ellipsis}[tag]
        return self.rare(tag)

    def rare(self, tag: str) -> Any:
        if tag == "x":
            return _known(*self.value())
        if tag == "k":
            name = self.value()
            value = getattr(builtins, name)
            if not isinstance(value, type | type(len)):
                raise ValueError(f"not a value: {name}")
            return value
        if tag == "n":
            name, fields, items = self.value()
            from collections import namedtuple

            return namedtuple(name, fields)(*items)
        if tag == "o":
            return self.other(self.value())
        raise ValueError(f"not a value: {tag!r}")


def _known(module: str, name: str, arguments: tuple[Any, ...]) -> Any:
    if (module, name) == ("numpy", "ndarray"):
        import numpy

        kind, shape, items = arguments
        if kind.lstrip("<>=|")[:1] not in "biufcSU":
            raise ValueError(f"not a value: an array of {kind}")
        return numpy.array(items, dtype=kind).reshape(shape)
    if module == "datetime" and name in ("datetime", "time"):
        import datetime

        return getattr(datetime, name).fromisoformat(*arguments)
    if (module, name) not in _KNOWN:
        raise ValueError(f"not a value: {module}.{name}")
    if module not in sys.modules:
        __import__(module)
    return getattr(sys.modules[module], name)(*arguments)
