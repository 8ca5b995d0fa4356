"""Whole groups go to one rank each; several ranks are tested in test_distributed.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from groupwise.training.distributed import ALONE, Ranks
from groupwise.training.sharing import SharedEngine


class Noting:
    """An engine that samples nothing and knows what it was asked for."""

    same_as_trainer = True

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.versions: list[int] = []
        self.closed = 0

    def generate(self, prompts: Sequence[str], sampling: Any, **given: Any) -> list[list[Any]]:
        self.asked.append(list(prompts))
        return [[prompt] for prompt in prompts]

    def load_weights(self, version: int, source: Any) -> None:
        self.versions.append(version)

    def close(self) -> None:
        self.closed += 1


class Rank(Ranks):
    """One rank whose companions give nothing."""

    def gather(self, value: Any) -> list[Any]:
        return [value]


@pytest.mark.parametrize(
    ("count", "shares"),
    [
        (1, ["abcde"]),
        (2, ["abc", "de"]),
        (4, ["ab", "c", "d", "e"]),
        (6, ["a", "b", "c", "d", "e", ""]),
    ],
)
def test_each_rank_samples_prompts_of_its_own(count: int, shares: list[str]) -> None:
    asked = []
    for number in range(count):
        own: Any = Noting()
        SharedEngine(own, Rank(number, count)).generate(list("abcde"), None, group_size=2, seed=(0,))  # type: ignore[arg-type]
        asked.append("".join(own.asked[0]))
    assert asked == shares


def test_the_rest_is_the_engines_own() -> None:
    own: Any = Noting()
    engine = SharedEngine(own, ALONE)
    assert engine.same_as_trainer
    engine.load_weights(3, None)
    engine.close()
    assert (own.versions, own.closed) == ([3], 1)
