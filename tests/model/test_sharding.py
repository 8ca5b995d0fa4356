"""What several processes do with a divided model is tested in tests/training/test_distributed.py."""

from __future__ import annotations

from collections.abc import Callable

import torch

from groupwise.model.load import Policy
from groupwise.model.sharding import divided, divided_as, whole, whole_copy, whole_on_first, whole_state


def test_what_is_not_divided_is_left_as_it_is(build_policy: Callable[..., Policy]) -> None:
    model = build_policy().model
    weight = next(iter(model.parameters()))
    assert whole(weight) is weight
    assert whole_on_first(weight) is weight
    assert divided_as(weight, weight) is weight
    assert not divided(model)
    own = model.state_dict()
    state = whole_state(model)
    assert state.keys() == own.keys()
    assert all(torch.equal(state[name], own[name]) for name in own)


def test_a_copy_is_a_copy(build_policy: Callable[..., Policy]) -> None:
    layer = build_policy().model.model.layers[0]
    copied = whole_copy(layer)
    for mine, theirs in zip(copied.parameters(), layer.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        assert mine.data_ptr() != theirs.data_ptr()
