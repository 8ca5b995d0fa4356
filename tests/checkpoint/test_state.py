"""Plain data to what torch reads without running code, and back."""

import io

import numpy as np
import pytest
import torch

from groupwise.checkpoint.state import pack, size_bytes, unpack

STATE = {
    "none": None,
    "flag": True,
    "count": 2**70,
    "share": 0.1 + 0.2,
    "name": "Zoë",
    "list": [1, [2.5, "x"], (3, None)],
    "by number": {0: {"a": 1}, 7: {}},
    "keys": np.arange(5, dtype=np.uint64),
    "mask": np.array([[True, False]]),
    "scalar": np.array(3.5),
    "empty": np.zeros((0, 3), dtype=np.float32),
    "tensor": torch.arange(4, dtype=torch.bfloat16),
}


def test_what_comes_back_is_what_was_given_bit_for_bit() -> None:
    file = io.BytesIO()
    torch.save(pack(STATE, "part"), file)
    file.seek(0)
    back = unpack(torch.load(file, weights_only=True))
    assert list(back) == list(STATE)
    for name, value in STATE.items():
        if isinstance(value, np.ndarray):
            assert back[name].dtype == value.dtype
            assert back[name].shape == value.shape
            assert np.array_equal(back[name], value)
        elif isinstance(value, torch.Tensor):
            assert back[name].dtype == value.dtype
            assert torch.equal(back[name], value)
        else:
            assert back[name] == value
            assert type(back[name]) is type(value)


def test_arrays_are_copied_and_views_bring_only_themselves() -> None:
    array = np.arange(3)
    packed = pack({"a": array}, "part")
    array[0] = 9
    assert unpack(packed)["a"].tolist() == [0, 1, 2]
    view = torch.zeros(1000)[:2]
    assert pack(view, "part").untyped_storage().nbytes() == 8


def test_the_size_is_that_of_tensors_and_arrays() -> None:
    # 1000 float64 and 10 float32 tensors' bytes, and little else.
    packed = pack({"a": np.zeros(1000), "b": [torch.zeros(10)]}, "part")
    assert 8040 <= size_bytes(packed) < 8200


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ({"a": {"b": [1, object()]}}, r"part\.a\.b\[1\]"),
        ({"f": len}, r"part\.f"),
        ({"s": {1, 2}}, r"part\.s"),
        ({"d": {(1, 2): 3}}, r"part\.d"),
        ({"sub": type("Odd", (float,), {})(1.0)}, r"part\.sub"),
    ],
)
def test_anything_else_is_named_by_its_place(state: object, place: str) -> None:
    with pytest.raises(TypeError, match=place):
        pack(state, "part")
