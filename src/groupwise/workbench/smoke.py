"""Does training raise a reward on this machine? A tiny model, an obvious rule, and a verdict that can be no.

The task: a model of random weights answers prompts of one line, and the reward is the share of lower-case letters in
its response. No knowledge is needed, only that advantages push the right tokens of the right rollouts.

The verdict compares the last quarter of the steps with the first. Rises measured on seeds from 100 on, which the tests
do not use: 0.401 with a std of 0.0145 when all is well (15 seeds); -0.001 with 0.011 at learning rate 0 and 0.002 with
0.031 where the rewards are shuffled, so that the policy drifts (30 seeds each, the largest 0.079); -0.386 with 0.009
where every sign is flipped (10 seeds). The bound of 0.2 is 14, 19, 6 and more than 60 standard deviations away.
"""

from __future__ import annotations

import dataclasses
import functools
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.errors import ConfigError
from groupwise.registry import nearest

if TYPE_CHECKING:
    from rich.console import Console

    from groupwise.training.inputs import Inputs

RISE = 0.2
"""How much the reward has to rise, in units of reward: the mean of the last quarter of the steps less the first's."""

CONTROLS = ("learning-rate-zero", "shuffled-rewards", "flipped-sign")
"""Ways to break the learning on purpose. Each has to end in FAIL, or a PASS means nothing."""

_CONFIG: dict[str, Any] = {
    "model": "tiny",
    "objective": {"preset": "grpo", "kl": {"beta": 0.0}},
    "rollout": {"prompts_per_step": 8, "group_size": 16, "max_new_tokens": 8},
    "training": {"steps": 20, "learning_rate": 5e-3},
    "run": {"sinks": ["terminal"], "save_rollouts": False, "save_model": False},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoke:
    """What a smoke run found."""

    rewards: list[float]
    """Mean reward of each step, from 0 to 1."""
    seconds: float
    """From the first line read to the last step."""

    @property
    def first(self) -> float:
        """Mean over the first quarter of the steps."""
        return float(np.mean(self.rewards[: self._quarter]))

    @property
    def last(self) -> float:
        """Mean over the last quarter of the steps."""
        return float(np.mean(self.rewards[-self._quarter :]))

    @property
    def passed(self) -> bool:
        """True when the reward rose by at least `RISE`."""
        return self.last - self.first >= RISE

    @property
    def sentence(self) -> str:
        """The verdict for people."""
        verdict, said = ("PASS", "rose") if self.passed else ("FAIL", "went")
        rise = self.last - self.first
        return (
            f"{verdict}: the mean reward {said} from {self.first:.3f} in the first {self._quarter} of "
            f"{len(self.rewards)} steps to {self.last:.3f} in the last {self._quarter}, by {rise:+.3f} "
            f"(at least {RISE:+} is asked), in {self.seconds:.0f} seconds"
        )

    @property
    def _quarter(self) -> int:
        return max(1, len(self.rewards) // 4)


def smoke(
    seed: int = 0,
    overrides: Sequence[str] = (),
    *,
    control: str | None = None,
    console: Console | None = None,
) -> Smoke:
    """Train a tiny model on an obvious reward and say whether the reward rose.

    Args:
        seed: of the model's weights, the samples and the order of prompts.
        overrides: settings as `key=value`, on top of the run's own.
        control: one of `CONTROLS`: no update at all; the rewards of a batch dealt out at random among its rollouts; or
            every advantage with the other sign.
        console: where the progress goes; the terminal by default.

    Raises:
        ConfigError: no such control, or a wrong setting.
    """
    if control is not None and control not in CONTROLS:
        near = nearest(control, CONTROLS)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(CONTROLS)}"
        raise ConfigError(f"no control is called {control!r}; {hint}")
    from groupwise.config import load
    from groupwise.training import loop, setup
    from groupwise.training.inputs import read_inputs

    started = time.perf_counter()
    words = [f"run.seed={seed}", *overrides]
    if control == "learning-rate-zero":
        words.append("training.learning_rate=0")
    reward: Callable[..., list[float]] = (
        _dealt_out(seed) if control == "shuffled-rewards" else lowercase_share
    )
    rows = [{"prompt": f"Give word number {i}."} for i in range(64)]
    with tempfile.TemporaryDirectory(prefix="groupwise-smoke-") as folder:
        tree = {**_CONFIG, "run": {**_CONFIG["run"], "dir": str(Path(folder) / "run")}}
        inputs = read_inputs(load(tree, words), rewards=[reward], train=rows)
        if control == "flipped-sign":
            inputs = _flipped(inputs)
        result = loop.train(setup.assemble(inputs, console=console))
    return Smoke(rewards=result.series("reward/mean"), seconds=time.perf_counter() - started)


def lowercase_share(completions: Sequence[str], **columns: Any) -> list[float]:
    """Lower-case letters divided by all characters of each completion; 0 for an empty one."""
    return [sum(c.islower() for c in text) / max(len(text), 1) for text in completions]


def _dealt_out(seed: int) -> Callable[..., list[float]]:
    """The same rewards, each given to a rollout of the batch at random: their mean is the true one."""
    order = np.random.default_rng(seed)

    def dealt_out(completions: Sequence[str], **columns: Any) -> list[float]:
        rewards: list[float] = order.permutation(lowercase_share(completions)).tolist()
        return rewards

    return dealt_out


def _flipped(inputs: Inputs) -> Inputs:
    from groupwise.objective.estimator import Estimator

    function = inputs.estimate.function

    @functools.wraps(function)
    def flipped(*given: Any) -> Any:
        return [-np.asarray(advantage) for advantage in function(*given)]

    return dataclasses.replace(inputs, estimate=Estimator(flipped))
