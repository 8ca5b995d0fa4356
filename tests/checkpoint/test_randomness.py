"""The generators of the process go on where they were."""

import random

import numpy as np
import pytest
import torch

from groupwise.checkpoint.randomness import ProcessRandomness
from groupwise.checkpoint.state import pack, unpack
from groupwise.errors import CheckpointError


def drawn() -> tuple[float, ...]:
    return (
        random.random(),
        random.gauss(0, 1),
        float(np.random.rand()),
        float(np.random.randn()),
        float(torch.rand(1)),
    )


def test_the_same_numbers_follow() -> None:
    randomness = ProcessRandomness()
    randomness.seed(2**40 + 3)
    drawn()  # leaves half of a pair of normal numbers behind, in Python and in NumPy
    state = unpack(pack(randomness.state(), "randomness"))
    expected = [drawn() for _ in range(3)]
    drawn()
    randomness.restore(state)
    assert [drawn() for _ in range(3)] == expected


def test_a_seed_starts_all_of_them() -> None:
    randomness = ProcessRandomness()
    randomness.seed(1)
    one = drawn()
    randomness.seed(1)
    assert drawn() == one
    randomness.seed(2)
    assert all(a != b for a, b in zip(drawn(), one, strict=True))


@pytest.mark.parametrize(
    "damage", [{"python": [3, [1, 2], None]}, {"numpy": ["MT19937"]}, {"torch": torch.zeros(3)}]
)
def test_a_state_that_does_not_fit_is_a_sentence(damage: dict[str, object]) -> None:
    randomness = ProcessRandomness()
    with pytest.raises(CheckpointError, match="random generators"):
        randomness.restore({**randomness.state(), **damage})
