r"""Expressions read by a grammar: LaTeX and what people type, `\frac{1}{2}` and `sqrt(2)/2`, to a tree of `Node`.

    sum      = product (("+" | "-") product)*
    product  = signed (("*" | "\cdot" | "/" | "\div" | nothing) signed)*      from the left
    signed   = ("+" | "-")* power
    power    = postfix ("^" exponent)?
    postfix  = atom ("!" | "%" | "^\circ")*

A number before a proper fraction is a mixed number. Two numbers side by side are not a product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from groupwise.rewards.mathematics.nodes import (
    Node,
    UnreadableError,
    based,
    constant,
    function,
    negative,
    number,
    power,
    product,
    quotient,
    symbol,
    total,
)
from groupwise.rewards.mathematics.spelling import GREEK
from groupwise.rewards.mathematics.tokens import Token
from groupwise.rewards.mathematics.vocabulary import vocabulary

MAX_DEPTH = 40
"""Most brackets within brackets that are read."""

FUNCTIONS = vocabulary(
    "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc asin acos atan sinh cosh tanh ln "
    "log exp sqrt abs floor ceil min max gcd lcm binom cbrt sgn det Re Im arg factorial"
)
_INVERSE = {name: "arc" + name for name in ("sin", "cos", "tan", "cot", "sec", "csc")}
_ALIAS = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "ceiling": "ceil"}
_LISTED = frozenset({"min", "max", "gcd", "lcm"})
_APPLIED = frozenset("fg")
_NAMED = {"pi": "pi", "infinity": "infinity", "infty": "infinity", "inf": "infinity"}
_SMALL_WORDS = vocabulary(
    "is it so we of to in at by or and the be he me my no on an as do go if up us but for has had his her "
    "not all are was can one two six ten yes nan out may how why who you any our per its too now via "
    "off let see say get got set use try put cm mm km kg mg ml lb oz ft yd hr min sec deg mph kph rad am "
    "pm cup day ton sq cu true false"
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def read_expression(words: Sequence[Token]) -> Node:
    """The tree of a whole expression.

    Raises:
        UnreadableError: the words are no expression, it divides by zero, or it is nested too deeply.
    """
    reader = _Reader(words)
    if not words:
        raise UnreadableError("nothing is there")
    node = reader.sum()
    if reader.at < len(reader.words):
        raise UnreadableError(f"{reader.words[reader.at].text!r:.40} was not expected")
    return node


def is_letters(word: str) -> bool:
    """True for a run of letters that is a product of variables, not a word of a language."""
    return (len(word) == 1 and word.isascii()) or (
        len(word) <= 3
        and word.isalpha()
        and word.lower() not in _SMALL_WORDS
        and word not in FUNCTIONS
        and word.isascii()
    )


class _Reader:
    """Reads from the left; `at` is the next word."""

    def __init__(self, words: Sequence[Token]) -> None:
        self.words = list(words)
        self.at = 0
        self.depth = 0

    def peek(self, ahead: int = 0) -> Token | None:
        return self.words[self.at + ahead] if self.at + ahead < len(self.words) else None

    def next_is(self, kind: str, *texts: str, ahead: int = 0) -> bool:
        token = self.peek(ahead)
        return token is not None and token.kind == kind and (not texts or token.text in texts)

    def take(self, kind: str, *texts: str) -> bool:
        if self.next_is(kind, *texts):
            self.at += 1
            return True
        return False

    def expect(self, sign: str) -> None:
        if not self.take("sign", sign):
            raise UnreadableError(f"a {sign} is missing")

    def sum(self) -> Node:
        parts = [self.product()]
        while self.next_is("sign", "+", "-"):
            minus = self.words[self.at].text == "-"
            self.at += 1
            part = self.product()
            parts.append(negative(part) if minus else part)
        return total(*parts) if len(parts) > 1 else parts[0]

    def product(self, *, in_function: bool = False) -> Node:
        node = self.signed()
        while True:
            if (not in_function and self.take("sign", "/")) or (
                not in_function and self.take("command", "div")
            ):
                node = quotient(node, self.signed())
            elif not in_function and (self.take("sign", "*") or self.take("command", "cdot")):
                node = product(node, self.signed())
            elif self.starts_factor(in_function):
                node = product(node, self.power())
            else:
                return node

    def starts_factor(self, in_function: bool) -> bool:
        token = self.peek()
        if token is None:
            return False
        if token.kind == "word":
            if in_function and _function_name(token.text):
                return False
            return (
                is_letters(token.text)
                or token.text in _NAMED
                or _function_name(token.text) is not None
                or (token.text in GREEK)
            )
        if token.kind == "command":
            if in_function and (token.text in FUNCTIONS and token.text not in ("sqrt", "binom")):
                return False
            return token.text in _ATOM_COMMANDS or token.text in FUNCTIONS or token.text.lower() in GREEK
        if token.kind == "sign":
            return (token.text in "([{" and not in_function) or (token.text == "{" and in_function)
        # A number right behind something else is no product: `1 2`, `x2`. Behind a bracket or a fraction it is.
        before = self.words[self.at - 1]
        return token.kind == "number" and before.text in (")", "}", "]")

    def signed(self) -> Node:
        minus = False
        while self.next_is("sign", "+", "-"):
            minus ^= self.words[self.at].text == "-"
            self.at += 1
        node = self.power()
        return negative(node) if minus else node

    def power(self) -> Node:
        node = self.postfix()
        if not self.take("sign", "^"):
            return node
        exponent = self.exponent()
        return power(node, exponent)

    def exponent(self) -> Node:
        """What follows a ^: a group, a bracket, or one signed atom, `x^-2`. From the right where towers are bare."""
        minus = False
        while self.next_is("sign", "+", "-"):
            minus ^= self.words[self.at].text == "-"
            self.at += 1
        node = self.atom()
        if self.take("sign", "^"):
            node = power(node, self.exponent())
        return negative(node) if minus else node

    def postfix(self) -> Node:
        node = self.atom()
        while True:
            if self.take("sign", "!"):
                node = _factorial(node)
            elif self.take("sign", "%"):
                node = product(node, number(Fraction(1, 100)))
            elif self.take("command", "permille"):
                node = product(node, number(Fraction(1, 1000)))
            elif self.next_is("sign", "^") and self.next_is("command", "circ", ahead=1):
                self.at += 2
                node = product(node, number(Fraction(1, 180)), constant("pi"))
            else:
                return node

    def atom(self) -> Node:
        token = self.peek()
        if token is None:
            raise UnreadableError("it breaks off")
        self.at += 1
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnreadableError(f"it is nested more than {MAX_DEPTH} deep")
        node = self.begun_by(token)
        self.depth -= 1
        return node

    def begun_by(self, token: Token) -> Node:
        if token.kind == "number":
            return self.number(token)
        if token.kind == "word":
            return self.word(token)
        if token.kind == "command":
            return self.command(token)
        if token.kind == "sign" and token.text in _CLOSING:
            node = self.sum()
            self.expect(_CLOSING[token.text])
            return node
        if token.kind == "sign" and token.text == "|":
            node = self.sum()
            self.expect("|")
            return function("abs", node)
        raise UnreadableError(f"{token.text!r:.40} was not expected")

    def number(self, token: Token) -> Node:
        assert token.value is not None
        if self.next_is("sign", "_"):
            self.at += 1
            base = self.subscript()
            if not base.isdigit() or not token.text.isdigit():
                raise UnreadableError("a number has a subscript that is no base")
            return based(token.text, base)
        value = token.value
        whole = value.denominator == 1 and "." not in token.text
        if whole and self.next_is("command", "frac"):
            start = self.at
            self.at += 1
            part = self.fraction()
            if part.value is not None and 0 < part.value < 1 and _is_plain(self.words[start : self.at]):
                return number(value + part.value)
            self.at = start
        over, slash, under = self.peek(), self.peek(1), self.peek(2)
        if (
            whole
            and over is not None
            and under is not None
            and over.kind == under.kind == "number"
            and over.spaced
            and slash is not None
            and slash.text == "/"
            and over.value is not None
            and under.value
            and over.value < under.value
        ):
            self.at += 3
            return number(value + over.value / under.value)
        return number(value)

    def word(self, token: Token) -> Node:
        text = token.text
        name = _function_name(text)
        if name is not None:
            return self.function(name)
        if text in _NAMED:
            return constant(_NAMED[text])
        if text in GREEK:
            return self.variable(text)
        if not is_letters(text):
            raise UnreadableError(f"{text!r:.40} is a word, not a part of an expression")
        if len(text) == 1:
            return self.variable(text)
        # Of several letters only the last can bear a subscript or a power.
        first = [_letter(letter) for letter in text[:-1]]
        last = self.variable(text[-1])
        if self.take("sign", "^"):
            last = power(last, self.exponent())
        return product(*first, last)

    def variable(self, name: str) -> Node:
        if self.next_is("sign", "_"):
            self.at += 1
            name += "_" + self.subscript()
        while self.take("sign", "'"):
            name += "'"
        if name in _APPLIED and self.next_is("sign", "("):
            self.at += 1
            parts = self.arguments(")")
            return function(name, *parts)
        return _letter(name)

    def subscript(self) -> str:
        token = self.peek()
        if token is None:
            raise UnreadableError("a subscript is missing")
        self.at += 1
        if token.text != "{" or token.kind != "sign":
            return token.text
        written = []
        while not self.take("sign", "}"):
            token = self.peek()
            if token is None or token.text == "{":
                raise UnreadableError("a subscript is never closed")
            written.append(token.text)
            self.at += 1
        return "".join(written)

    def command(self, token: Token) -> Node:
        name = token.text
        if name == "frac":
            return self.fraction()
        if name == "binom":
            return function("binom", self.argument(), self.argument())
        if name in _NAMED:
            return constant(_NAMED[name])
        if name == "i":
            return constant("i")
        if name.lower() in GREEK:
            return self.variable(name)
        if name in ("lfloor", "lceil"):
            closing = "r" + name[1:]
            node = self.sum()
            if not self.take("command", closing):
                raise UnreadableError(f"a {closing} is missing")
            return function("floor" if name == "lfloor" else "ceil", node)
        if name in FUNCTIONS:
            return self.function(name)
        if name == "overline":
            raise UnreadableError("a bar stands over what is no repeating decimal")
        raise UnreadableError(f"the command \\{name:.40} is not known")

    def fraction(self) -> Node:
        return quotient(self.argument(), self.argument())

    def argument(self) -> Node:
        r"""What a command takes: a group, or one word; of a number one digit, so that `\frac12` is a half."""
        token = self.peek()
        if token is None:
            raise UnreadableError("it breaks off")
        if token.kind == "number" and len(token.text) > 1 and token.text.isdigit():
            self.words[self.at] = Token("number", token.text[1:], False, Fraction(int(token.text[1:])))
            return number(int(token.text[0]))
        if token.kind == "sign" and token.text == "-":
            raise UnreadableError("a fraction has a sign where a group belongs")
        return self.atom()

    def arguments(self, closing: str) -> list[Node]:
        parts = [self.sum()]
        while self.take("sign", ","):
            parts.append(self.sum())
        self.expect(closing)
        return parts

    def function(self, name: str) -> Node:
        name = _ALIAS.get(name, name)
        if name in _LISTED:
            if not self.take("sign", "("):
                raise UnreadableError(f"{name} has no bracket")
            return _of_whole_numbers(name, self.arguments(")"))
        if name == "sqrt":
            return self.root()
        base: Node | None = None
        exponent: Node | None = None
        if name == "log" and self.take("sign", "_"):
            base = self.argument_of_log()
        if self.take("sign", "^"):
            exponent = self.exponent()
        if exponent is not None and exponent.value == -1 and name in _INVERSE:
            name, exponent = _INVERSE[name], None
        node = _apply(name, self.function_argument(), base)
        return node if exponent is None else power(node, exponent)

    def argument_of_log(self) -> Node:
        token = self.peek()
        if token is not None and token.kind == "number":
            self.at += 1
            return number(token.value or 0)
        return self.argument()

    def function_argument(self) -> Node:
        """A bracket, or without one what follows up to the next sign or function: `sin 2x cos x`."""
        if self.next_is("sign", "(", "{", "["):
            opening = self.words[self.at].text
            self.at += 1
            node = self.sum()
            self.expect(_CLOSING[opening])
            return power(node, self.exponent()) if self.take("sign", "^") else node
        return self.product(in_function=True)

    def root(self) -> Node:
        degree = number(2)
        if self.take("sign", "["):
            degree = self.sum()
            self.expect("]")
        inside = self.atom() if self.next_is("sign", "(", "{", "|") else self.postfix()
        return power(inside, power(degree, number(-1)))


_ATOM_COMMANDS = frozenset({"frac", "binom", "infty", "pi", "i", "lfloor", "lceil", "sqrt"})


def _function_name(word: str) -> str | None:
    return word if word in FUNCTIONS and word not in ("min", "deg") else ("min" if word == "min" else None)


def _letter(name: str) -> Node:
    return constant(name) if name in ("e", "i") else symbol(name)


def _is_plain(words: Sequence[Token]) -> bool:
    """True for a fraction of two numbers as written, which is what makes a mixed number."""
    return all(w.kind == "number" or w.text in ("frac", "{", "}") for w in words)


def _factorial(node: Node) -> Node:
    if node.value is not None and node.value.denominator == 1 and 0 <= node.value <= 200:
        result = 1
        for i in range(2, int(node.value) + 1):
            result *= i
        return number(result)
    return function("factorial", node)


def _of_whole_numbers(name: str, parts: list[Node]) -> Node:
    """A greatest common divisor or the like; computed where all it is taken of are whole numbers."""
    values = [part.value for part in parts]
    if name in ("gcd", "lcm") and all(value is not None and value.denominator == 1 for value in values):
        whole = [int(value) for value in values if value is not None]
        return number(math.gcd(*whole) if name == "gcd" else math.lcm(*whole))
    return function(name, *parts)


def _apply(name: str, node: Node, base: Node | None) -> Node:
    """A function of one argument, in the fewest names: roots and exponentials are powers."""
    if name == "exp":
        return power(constant("e"), node)
    if name == "cbrt":
        return power(node, number(Fraction(1, 3)))
    if name == "factorial":
        return _factorial(node)
    if name == "abs" and node.value is not None:
        return number(abs(node.value))
    if name in ("floor", "ceil") and node.value is not None:
        whole = node.value.numerator // node.value.denominator
        return number(whole if name == "floor" or node.value == whole else whole + 1)
    if name == "log":
        return quotient(function("ln", node), function("ln", base or number(10)))
    return function(name, node)
