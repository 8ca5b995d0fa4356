"""What a part of a run remembers, as plain data, so that a checkpoint can hold it without any code.

A part that decides the future has two methods, `state` and `restore`, and one line in `Run.parts`. Nothing else is
needed for it to be saved, checked and taken up again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch

from groupwise.model.sharding import whole_on_first

_ARRAY = "__numpy__"
_PLAIN = (bool, int, float, str, type(None))


class Stateful(Protocol):
    """A part of a run with a memory that decides what comes."""

    def state(self) -> Mapping[str, Any]:
        """Everything that decides what this part will do, by name.

        Values are None, bool, int, float, str, lists, tuples, mappings with keys of text or whole numbers, NumPy arrays
        and torch tensors. Tensors that only an update changes, such as weights, are given as they are, without a copy;
        whatever sampling or scoring changes is copied.
        """
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what `state` described, so that the same future follows, bit for bit.

        Raises:
            CheckpointError: that state does not fit this part; says why.
        """
        ...


def pack(value: Any, place: str) -> Any:
    """The value in the kinds that `torch.load(..., weights_only=True)` reads: arrays become marked tensors.

    A tensor that is divided among processes is put together, by all of them at once, and is empty at all but the first.

    Args:
        value: as `Stateful.state` gives it.
        place: name of the part, for the error.

    Raises:
        TypeError: something that is not plain data; says where.
    """
    if isinstance(value, torch.Tensor):
        whole = whole_on_first(value.detach())
        # torch writes the whole storage that a view looks into.
        return whole if whole.nbytes == whole.untyped_storage().nbytes() else whole.clone()
    if isinstance(value, np.ndarray):
        return {_ARRAY: torch.from_numpy(np.ascontiguousarray(value).copy()), "shape": list(value.shape)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {_key(key, place): pack(inner, f"{place}.{key}") for key, inner in value.items()}
    if isinstance(value, list | tuple):
        packed = [pack(inner, f"{place}[{i}]") for i, inner in enumerate(value)]
        return packed if isinstance(value, list) else tuple(packed)
    if type(value) in _PLAIN:
        return value
    raise TypeError(f"the state {place} is of the type {type(value).__name__}, which is not plain data")


def unpack(value: Any) -> Any:
    """What `pack` was given."""
    if isinstance(value, dict):
        if _ARRAY in value:
            return value[_ARRAY].numpy().reshape(value["shape"])
        return {key: unpack(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [unpack(inner) for inner in value]
    if isinstance(value, tuple):
        return tuple(unpack(inner) for inner in value)
    return value


def size_bytes(packed: Any) -> int:
    """About how many bytes a packed value takes on disk."""
    if isinstance(packed, torch.Tensor):
        return int(packed.nbytes)
    if isinstance(packed, dict):
        return sum(size_bytes(inner) for inner in packed.values())
    if isinstance(packed, list | tuple):
        return sum(size_bytes(inner) for inner in packed)
    return 16


def _key(key: Any, place: str) -> Any:
    if type(key) not in (str, int):
        raise TypeError(f"the state {place} has the key {key!r}, which is neither text nor a whole number")
    return key
