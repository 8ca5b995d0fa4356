"""Messages between two processes, and calls that go both ways over them.

A frame is eight hexadecimal digits, the length, and that many bytes of text as `plain` writes it.
"""

from __future__ import annotations

import _thread
import operator
import os

from . import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MOST = 64 * 1024 * 1024
"""Bytes of the longest frame."""


class ClosedError(Exception):
    """The other side is gone."""


class BrokenError(Exception):
    """The other side sent what is no message."""


def send(fd: int, text: str) -> None:
    """Write one frame.

    Raises:
        ClosedError: nobody reads it.
    """
    body = text.encode("utf-8", "surrogatepass")
    if len(body) > MOST:
        raise ValueError(f"a value of {len(body)} bytes is too large to be told")
    view = memoryview(b"%08x" % len(body) + body)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except (BrokenPipeError, ConnectionResetError):
        raise ClosedError from None


def receive(fd: int, most: int = MOST) -> str:
    """Read one frame.

    Raises:
        ClosedError: there is none, or it is cut off.
        BrokenError: it is no frame, or one of more than `most` bytes.
    """
    try:
        length = int(_exactly(fd, 8), 16)
        if not 0 <= length <= most:
            raise BrokenError(f"a message of {length} bytes")
        return _exactly(fd, length).decode("utf-8", "surrogatepass")
    except ValueError as error:
        raise BrokenError(str(error)) from None
    except ConnectionResetError:
        raise ClosedError from None


def _exactly(fd: int, count: int) -> bytes:
    parts = []
    while count:
        part = os.read(fd, min(count, 1 << 20))
        if not part:
            raise ClosedError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


class Peer:
    """One end of a conversation in which either side may ask while it is being asked.

    Values cross as plain data. What is not plain stays where it is, and the other side gets a number for it.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._asking = _thread.RLock()
        self._writing = _thread.allocate_lock()
        self._mine: list[Any] = []
        self._numbers: dict[int, int] = {}

    def number(self, value: Any) -> int:
        """The number that the other side knows a value of ours by; keeps it alive."""
        number = self._numbers.get(id(value))
        if number is None:
            number = len(self._mine)
            self._mine.append(value)
            self._numbers[id(value)] = number
        return number

    def mine(self, number: int) -> Any:
        """The value of ours that has this number."""
        if type(number) is not int or not 0 <= number < len(self._mine):
            raise ValueError(f"there is no object {number!r}")
        return self._mine[number]

    if TYPE_CHECKING:  # what each side does in its own way

        def describe(self, value: Any) -> Any:
            """What the other side is told of an object that stays here."""

        def stand_in(self, description: Any) -> Any:
            """What stands here for an object that the other side described."""

        def serve(self, question: tuple[Any, ...]) -> Any:
            """Answer one question of the other side."""

        def raise_again(self, told: Any) -> None:
            """Raise here what a question raised there."""

        def tell_error(self, error: BaseException) -> Any:
            """What the other side is told of an exception."""

    def encode(self, value: Any) -> str:
        """A value as text."""
        return plain.encode(value, self.describe)

    def decode(self, text: str) -> Any:
        """The value of a text."""
        try:
            return plain.decode(text, self.stand_in)
        except ValueError as error:
            raise BrokenError(str(error)) from None

    def ask(self, *question: Any) -> Any:
        """Ask the other side, answering what it asks in the meantime.

        Raises:
            ClosedError, BrokenError: it is gone, or talks nonsense.
        """
        text = self.encode(question)
        with self._asking:
            self._send("?" + text)
            while True:
                message = receive(self.fd)
                if message[:1] == "?":
                    self.answer(message)
                    continue
                value = self.decode(message[1:])
                if message[:1] == "!":
                    self.raise_again(value)
                if message[:1] != "=":
                    raise BrokenError(f"a message that begins with {message[:1]!r}")
                return value

    def answer(self, message: str) -> None:
        """Answer one question as it was received."""
        try:
            question = self.decode(message[1:])
            reply = "=" + self.encode(self.serve(question))
        except (ClosedError, BrokenError):
            raise
        except BaseException as error:
            reply = "!" + self.encode(self.tell_error(error))
        self._send(reply)

    def serve_until_closed(self) -> None:
        """Answer questions until the other side is gone."""
        while True:
            try:
                message = receive(self.fd)
            except (ClosedError, BrokenError):
                return
            if message[:1] != "?":
                return
            self.answer(message)

    def _send(self, text: str) -> None:
        with self._writing:
            send(self.fd, text)


ARITHMETIC = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"),
    *("lshift", "rshift", "xor", "and_", "or_"),
)
ORDER = ("lt", "le", "gt", "ge")
ITEMS = ("getitem", "setitem", "delitem", "contains")
SIGNS = ("neg", "pos", "abs", "invert")
CONVERSIONS = {
    f.__name__: f for f in (len, iter, next, str, repr, bool, float, int, complex, hash, reversed, round)
}
OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in (*ARITHMETIC, *ORDER, *ITEMS, *SIGNS, "eq", "ne", "index")},
    **CONVERSIONS,
}
"""What may be asked of an object beside calling it and reading its attributes, by name."""
