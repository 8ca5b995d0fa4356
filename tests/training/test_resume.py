"""Going on with a run gives what never stopping would have given."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import groupwise
from groupwise.training.loop import Result
from tests.end_to_end.interrupted import HELD_OUT, ROWS, differing, left_behind, restless, tree

VARIANTS: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"lora": {"rank": 4, "dropout": 0.2}},
    "no reference": {"objective": {"kl": {"beta": 0.0}}},
    "trainer's log-probs": {"rollout": {"top_p": 0.9}},
}


class Power:
    """A reward that fails at one call, as a machine does."""

    def __init__(self, calls: int) -> None:
        self.left = calls
        self.__name__ = "restless"

    def __call__(self, completions: list[str], **columns: Any) -> list[float]:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return restless(completions)


def train(folder: Path, reward: Callable[..., Any] = restless, **sections: Any) -> None:
    groupwise.train(tree(folder, **sections), rewards=[reward], train=ROWS, held_out=HELD_OUT)


def resume(folder: Path, *words: str, reward: Callable[..., Any] = restless) -> Result:
    return groupwise.train(resume=folder, overrides=words, rewards=[reward], train=ROWS, held_out=HELD_OUT)


@pytest.mark.parametrize("variant", VARIANTS)
def test_stopped_anywhere_and_gone_on_with_it_is_the_same_run(tmp_path: Path, variant: str) -> None:
    sections = VARIANTS[variant]
    train(tmp_path / "whole", **sections)
    expected = left_behind(tmp_path / "whole")
    assert len(expected) > 10
    folder = tmp_path / "stopped"
    # Nine scorings: one evaluation before, five batches, evaluations after steps 2, 4 and 5.
    with pytest.raises(KeyboardInterrupt):
        train(folder, reward=Power(3), **sections)
    for calls in (2, 3):
        with pytest.raises(KeyboardInterrupt):
            resume(folder, reward=Power(calls))
    result = resume(folder)
    assert differing(left_behind(folder), expected) == []
    assert [line["step"] for line in result.metrics] == [0, 1, 2, 3, 4, 5]
