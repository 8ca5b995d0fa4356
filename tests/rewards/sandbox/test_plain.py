"""Values that cross between program and tests."""

from __future__ import annotations

import array
import contextlib
import datetime
import os
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.rewards.sandbox.inside import plain, wire

Point = namedtuple("Point", "x y")


def there_and_back(value: Any) -> Any:
    return plain.decode(plain.encode(value, lambda v: ("object", type(v).__name__)), lambda told: told)


_ATOMS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(), st.just(...)
)
_VALUES = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.lists(inner), st.tuples(inner, inner), st.dictionaries(st.text() | st.integers(), inner)
    ),
    max_leaves=10,
)


@given(_VALUES)
@settings(max_examples=60, deadline=None)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    back = there_and_back(value)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        "\ud800 lone",
        pytest.param(10**5000, id="5001 digits"),
        -(1 << 70),
        [1] * 20,
        (1.5, 2.5, float("inf")) * 10,
        frozenset(range(20)),
        {1, "a"},
        range(3, 9, 2),
        1 + 2j,
        bytearray(b"ab"),
        Fraction(-1, 3),
        Decimal("1.10"),
        Counter("aab"),
        OrderedDict(b=1, a=2),
        deque([1, 2], maxlen=3),
        array.array("d", [1.0, 2.0]),
        datetime.date(2020, 2, 29),
        datetime.datetime(2020, 1, 2, 3, 4, 5, 6),
        datetime.timedelta(1, 2, 3),
        int,
        len,
        ValueError,
    ],
)
def test_what_else_crosses_as_itself(value: Any) -> None:
    back = there_and_back(value)
    assert back == value
    assert type(back) is type(value)


def test_a_named_tuple_keeps_its_names() -> None:
    back = there_and_back(Point(1, [2]))
    assert back == (1, [2])
    assert back.y == [2]


def test_subclasses_cross_as_the_plain_value_that_they_hold() -> None:
    class Liar(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    back = there_and_back([Liar(3)])
    assert back != [4]
    assert type(back[0]) is int
    assert there_and_back(defaultdict(int, a=1)) == {"a": 1}
    assert type(there_and_back(np.float64(1.5))) is float
    assert np.array_equal(there_and_back(np.arange(6).reshape(2, 3)), np.arange(6).reshape(2, 3))


def test_what_is_not_plain_is_described() -> None:
    assert there_and_back([object()]) == [("object", "object")]


def test_what_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(RecursionError):
        there_and_back(endless)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "?",
            "i5",
            "i;",
            "igg;",
            "c5;ab",
            "c-1;",
            "f;",
            "fx;",
            "l2;N",
            "lffffffff;N",
            "d1;N",
            "NN",
            "b2;a",
        ),
        *(
            "x",
            "xN",
            "xt1;N",
            "xt3;c8;builtinsc4;evalt1;c1;1",
            "xt3;c2;osc6;systemt1;c4;true",
            "kc4;evil",
            "ki1;",
        ),
        *(
            "kc9;__debug__",
            "nt3;c1;Pt1;c3;a b",
            "Il1 x;",
            "Rl1 x;",
            "I",
            "s1;l0;",
            "xt3;c9;fractionsc8;Fractiont2;i1;i0;",
        ),
        "xt3;c5;numpyc7;ndarrayt3;c1;Ot1;i1;l1;N",
    ],
)
def test_what_nobody_wrote_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        plain.decode(text, lambda told: told)


@given(st.text(alphabet="NTFEiclstzdbxknoIR0123456789abcdef;-. ", max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError, RecursionError):
        plain.decode(text, lambda told: told)


def test_frames() -> None:
    read, write = os.pipe()
    wire.send(write, "a\ud800€")
    assert wire.receive(read) == "a\ud800€"
    os.write(write, b"ffffffff")
    with pytest.raises(wire.BrokenError, match="a message of 4294967295 bytes"):
        wire.receive(read)
    os.write(write, b"0000000")
    os.close(write)
    with pytest.raises(wire.ClosedError):
        wire.receive(read)
    os.close(read)
