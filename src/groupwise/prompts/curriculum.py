"""Which prompts are ready: an estimate of success for each, and a threshold of difficulty that rises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.config.prompts import CurriculumConfig
from groupwise.errors import CheckpointError, DataError
from groupwise.records import Prompt


class Curriculum:
    """Holds how likely each prompt is to be answered right, and says which are ready at a step.

    At step s the threshold d(s) goes along a line from the first to the second number of `difficulty` over `steps`. A
    prompt with estimated success p waits while 1 - p > d(s), and is passed over once p >= `mastered`. Either is tried
    once more `again_after` steps after it was last sampled, so that no estimate grows stale.
    """

    def __init__(self, config: CurriculumConfig, prompts: Sequence[Prompt], *, pass_reward: float) -> None:
        """Begin with the first estimates.

        Args:
            config: the section `prompts.curriculum`.
            prompts: to train on; their places in this list are their indexes.
            pass_reward: total reward from which on a rollout passes.

        Raises:
            DataError: see `first_estimate`.
        """
        self.config = config
        self.pass_reward = pass_reward
        self.threshold = config.difficulty[0]
        """Of difficulty, in force."""
        self.success_P: NDArray[np.float64] = np.array(
            [first_estimate(prompt.columns, prompt.id, config) for prompt in prompts]
        )
        """Estimated share of rollouts that pass."""
        self.sampled_P: NDArray[np.int64] = np.full(len(prompts), -1)
        """The step that each prompt was last sampled for, 0 for the first; -1 for never."""
        self._index = {prompt.id: index for index, prompt in enumerate(prompts)}
        self._step = 0

    def begin(self, step: int) -> NDArray[np.bool_]:
        """Which prompts are ready for a step, 0 for the first, shape [P].

        Where none is, the easiest of those that wait are; where all are mastered, all are.
        """
        low, high = self.config.difficulty
        self._step = step
        self.threshold = low + (high - low) * min(step / self.config.steps, 1.0)
        difficulty_P = 1.0 - self.success_P
        waits_P = difficulty_P > self.threshold + 1e-9
        passed_P = np.zeros(len(waits_P), dtype=np.bool_)
        if self.config.mastered is not None:
            passed_P = self.success_P >= self.config.mastered - 1e-9
        due_P = (self.sampled_P >= 0) & (step - self.sampled_P >= self.config.again_after)
        ready_P: NDArray[np.bool_] = ~(waits_P | passed_P) | due_P
        if not ready_P.any():
            waiting_P = waits_P & ~passed_P
            easiest = difficulty_P[waiting_P].min() if waiting_P.any() else None
            ready_P = passed_P if easiest is None else waiting_P & (difficulty_P <= easiest + 1e-9)
        return ready_P

    def learn(self, rewards: Iterable[tuple[str, Sequence[float]]]) -> None:
        """Take in what a step sampled, trained on or not: each prompt's id, and the rewards of its rollouts."""
        for prompt_id, rewards_G in rewards:
            if not rewards_G:
                continue
            index = self._index[prompt_id]
            passed = sum(reward >= self.pass_reward - 1e-9 for reward in rewards_G) / len(rewards_G)
            keep = self.config.keep
            self.success_P[index] = keep * self.success_P[index] + (1 - keep) * passed
            self.sampled_P[index] = self._step

    def state(self) -> dict[str, Any]:
        """Every estimate, and when each prompt was last sampled."""
        return {"success": self.success_P.copy(), "sampled": self.sampled_P.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`.

        Raises:
            CheckpointError: it is of another number of prompts.
        """
        success, sampled = state.get("success"), state.get("sampled")
        if success is None or sampled is None or len(success) != len(self.success_P):
            raise CheckpointError(
                f"the checkpoint's curriculum is not of the {len(self.success_P)} prompts of this run; resume with the "
                "data it had"
            )
        self.success_P, self.sampled_P = np.array(success), np.array(sampled)


def first_estimate(columns: Mapping[str, Any], place: str, config: CurriculumConfig) -> float:
    """The estimated success of a prompt that was never sampled: its own column's, or the same for all.

    Args:
        columns: of its row.
        place: where the row is, for errors.
        config: the section `prompts.curriculum`.

    Raises:
        DataError: the column is not there, or holds something else than 0 to 1 or null.
    """
    name = config.column
    if name is None:
        return config.first
    if name not in columns:
        raise DataError(
            f"{place}: no column {name!r} (prompts.curriculum.column); there are {', '.join(columns) or 'none'}"
        )
    value = columns[name]
    if value is None:
        return config.first
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise DataError(
            f"{place}: column {name!r} (prompts.curriculum.column) holds {value!r:.60}; it is the share of answers "
            "that passed elsewhere, from 0 to 1, or null; in .csv and .tsv every value is text, so take .jsonl"
        )
    return float(value)
