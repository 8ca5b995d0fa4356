import pytest

from groupwise.rewards.sandbox.inside.equality import same
from groupwise.rewards.sandbox.outputs import same_output


@pytest.mark.parametrize(
    ("given", "expected", "right"),
    [
        ("5", "5\n", True),
        ("5 \n", "5", True),
        ("5\r\n6\r\n", "5\n6\n", True),
        ("5\n\n\n", "5", True),
        ("", "", True),
        ("\n", "", True),
        (" 5", "5", False),  # what stands before a line can be seen
        ("5\n6", "5", False),
        ("5", "5\n6", False),
        ("5.0", "5", False),
        ("a  b", "a b", False),
        ("0.30000000000000004", "0.3", False),
        ("None", "", False),
    ],
)
def test_outputs(given: str, expected: str, right: bool) -> None:
    assert same_output(given, expected) is right


@pytest.mark.parametrize(
    ("given", "expected", "right"),
    [
        ("0.30000000000000004", "0.3", True),
        ("x 1.0000001  2", "x 1 2", True),
        ("1.01", "1", False),
        ("1000000.5", "1000000", True),  # relatively: 5e-7
        ("nan", "1", False),
        ("inf", "1", False),
        ("1 2", "1", False),
        ("1\n2", "1 2", False),
    ],
)
def test_outputs_with_a_tolerance(given: str, expected: str, right: bool) -> None:
    assert same_output(given, expected, tolerance=1e-6) is right


class Always:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("given", "expected", "right"),
    [
        (2.0, 2, True),
        (True, 1, True),
        ((1, (2,)), [1, [2]], True),  # JSON has no tuples
        ([1, 2], [1], False),
        ({"a": (1,)}, {"a": [1]}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({1: "a", 2: "b"}, {"1": "a", "2": "b"}, True),  # as JSON writes keys that are no text
        ({True: {1.5: [None]}, None: 0}, {"true": {"1.5": [None]}, "null": 0}, True),
        ({1: "a", "1": "b"}, {"1": "a"}, False),
        ({1: "a", "1": "b"}, {"1": "a", "2": "b"}, False),
        ({2: "a"}, {"1": "a"}, False),
        ({(1, 2): "a"}, {"(1, 2)": "a"}, False),
        ({1, 2}, [1, 2], False),
        ("12", ["1", "2"], False),
        (None, None, True),
        (0, None, False),
        (float("nan"), float("nan"), True),
        (0.1 + 0.2, 0.3, False),
    ],
)
def test_results_of_functions(given: object, expected: object, right: bool) -> None:
    assert same(given, expected, 0.0) is right


def test_results_with_a_tolerance() -> None:
    assert same([0.1 + 0.2], [0.3], 1e-9)
    assert not same([0.31], [0.3], 1e-9)
