"""What a batch of groups says before any update: rewards, lengths, diversity. Names as in docs/records.md."""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from groupwise.health.metric import Largest, Mean, Metric, Smallest, Spread, Total
from groupwise.objective.spread import RELATIVE_TOLERANCE
from groupwise.records import Group, Rollout, StopReason, TrainingGroup
from groupwise.records.nouns import NONE_APPLIES
from groupwise.rewards.reward import Taken
from groupwise.rollouts.collect import Collected
from groupwise.training.batch import Row
from groupwise.training.diversity import diversity

_LENGTHS = ("length/mean", "length/min", "length/max", "length/truncated_fraction")
_LENGTHS_RIGHT = (
    "length/right_mean",
    "length/right_min",
    "length/right_max",
    "length/right_truncated_fraction",
)
_LENGTHS_WRONG = (
    "length/wrong_mean",
    "length/wrong_min",
    "length/wrong_max",
    "length/wrong_truncated_fraction",
)
_LOW_SPREAD = 0.1


def measure(
    groups: Sequence[TrainingGroup], *, pass_reward: float | None = None, updates: int | None = None
) -> dict[str, Metric]:
    """Metrics of a batch, as sums and counts.

    Args:
        groups: the batch.
        pass_reward: total reward from which on a rollout is right; None where totals do not tell, so that nothing is
            said of right and wrong.
        updates: how many the policy has had; None leaves the lag of the sampling weights out.
    """
    sampled = [entry.group for entry in groups]
    metrics = _rewards(groups) | _responses(sampled) | diversity(sampled)
    if pass_reward is not None:
        metrics |= _right_and_wrong(groups, pass_reward - 1e-9)
    if updates is not None:
        metrics["sampler/lag_updates_mean"] = Mean.of(
            [updates - r.policy_version for group in sampled for r in group.rollouts_G]
        )
    return metrics


def _rewards(groups: Sequence[TrainingGroup]) -> dict[str, Metric]:
    verdicts = [v for entry in groups for v in entry.group.verdicts_G]
    rewards = [v.reward for v in verdicts if v.reward is not None]
    by_group = [[v.reward for v in entry.group.verdicts_G if v.reward is not None] for entry in groups]
    spreads = [Spread.of(group).value for group in by_group if group]
    advantages = [mean for entry in groups for mean in _mean_advantages(entry)]
    metrics: dict[str, Metric] = {
        "reward/mean": Mean.of(rewards),
        "reward/std": Spread.of(rewards),
        "reward/min": Smallest.of(rewards),
        "reward/max": Largest.of(rewards),
        "reward/group_std_mean": Mean.of(spreads),
        "reward/zero_spread_fraction": Mean.of([float(entry.zero_spread) for entry in groups]),
        "reward/tiny_spread_fraction": Mean.of([float(_hardly_differs(group)) for group in by_group]),
        "reward/low_spread_fraction": Mean.of([float(s < _LOW_SPREAD) for s in spreads]),
        "reward/absent_fraction": Mean.of([float(v.reward is None) for v in verdicts]),
        "reward/failed_count": Total(sum(v.failure not in (None, NONE_APPLIES) for v in verdicts)),
        "advantage/mean": Mean.of(advantages),
        "advantage/std": Spread.of(advantages),
    }
    greedy = [entry.group.greedy.verdict.reward for entry in groups if entry.group.greedy is not None]
    metrics["reward/greedy_mean"] = Mean.of([reward for reward in greedy if reward is not None])
    labels = dict.fromkeys(label for v in verdicts for label in v.parts)
    for label in labels:
        parts = [part for v in verdicts if (part := v.parts.get(label)) is not None]
        metrics[f"reward/part/{label}/mean"] = Mean.of(parts)
        metrics[f"reward/part/{label}/std"] = Spread.of(parts)
    return metrics


def _hardly_differs(rewards: Sequence[float]) -> bool:
    """Two distinct values, closer than a hundredth of the larger."""
    distinct = sorted(set(rewards))
    apart = distinct[-1] - distinct[0] if distinct else 0.0
    largest = max((abs(reward) for reward in distinct), default=0.0)
    return len(distinct) == 2 and RELATIVE_TOLERANCE * largest < apart < 0.01 * largest


def _right_and_wrong(groups: Sequence[TrainingGroup], least: float) -> dict[str, Metric]:
    """Groups without spread by what they are, and lengths of right and wrong responses apart."""
    right: list[Rollout] = []
    wrong: list[Rollout] = []
    all_right, all_wrong = [], []
    for entry in groups:
        pairs = zip(entry.group.rollouts_G, entry.group.verdicts_G, strict=True)
        judged = [(rollout, verdict.reward) for rollout, verdict in pairs if verdict.reward is not None]
        for rollout, reward in judged:
            (right if reward >= least else wrong).append(rollout)
        flat = entry.zero_spread and bool(judged)
        all_right.append(float(flat and judged[0][1] >= least))
        all_wrong.append(float(flat and judged[0][1] <= min(0.0, least)))
    return {
        "reward/pass_fraction": Mean(float(len(right)), float(len(right) + len(wrong))),
        "reward/all_right_fraction": Mean.of(all_right),
        "reward/all_wrong_fraction": Mean.of(all_wrong),
        **_lengths(right, _LENGTHS_RIGHT),
        **_lengths(wrong, _LENGTHS_WRONG),
    }


def _lengths(rollouts: Sequence[Rollout], names: Sequence[str]) -> dict[str, Metric]:
    """Mean, shortest, longest and the share that was cut off, under these names."""
    lengths = [len(r.token_ids_T) for r in rollouts]
    cut = [float(r.stop_reason is StopReason.LENGTH) for r in rollouts]
    measured = (Mean.of(lengths), Smallest.of(lengths), Largest.of(lengths), Mean.of(cut))
    return dict(zip(names, measured, strict=True))


def _mean_advantages(entry: TrainingGroup) -> list[float]:
    """Of each rollout in the loss, over its trained tokens."""
    return [
        float(entry.advantages_GT[i][rollout.trainable_T].mean())
        for i, rollout in enumerate(entry.group.rollouts_G)
        if entry.in_loss_G[i] and rollout.trainable_T.any()
    ]


def of_collecting(collected: Collected) -> dict[str, Metric]:
    """What sampling and scoring took."""
    kept, left_out = (
        sum(len(r.token_ids_T) for group in groups for r in group.rollouts_G)
        for groups in (collected.groups, collected.left_out)
    )
    metrics: dict[str, Metric] = {
        "time/generate_seconds": Total(collected.generate_seconds),
        "time/reward_seconds": Total(collected.reward_seconds),
        "tokens/per_second": Mean(kept + left_out, collected.generate_seconds),
        "tokens/generated": Total(kept + left_out),
    }
    if collected.redraws:
        metrics |= {
            "sampler/redraws": Total(collected.redraws),
            "sampler/left_out_groups": Total(len(collected.left_out)),
            "tokens/left_out": Total(left_out),
        }
    return metrics


def of_correction(rows: Sequence[Row]) -> dict[str, Metric]:
    """How many tokens the weighted ones are worth: (sum w)^2 / (n sum w^2), Kish's effective sample size as a share.

    Nothing where no weights are in force.
    """
    weights = [row.correction_T[row.rollout.trainable_T] for row in rows if row.correction_T is not None]
    if not weights:
        return {}
    weight_M = np.concatenate(weights).astype(np.float64)
    squares = float((weight_M**2).sum())
    fraction = float(weight_M.sum()) ** 2 / (len(weight_M) * squares) if squares > 0 else 0.0
    return {"sampler/effective_fraction": Mean(fraction, 1)}


def of_rewards(taken: Taken) -> dict[str, Metric]:
    """What the rewards themselves have to say of a batch: failures by name, seconds, gates, what they logged."""
    means: dict[str, Metric] = {name: Mean.of(given) for name, given in taken.means.items()}
    return means | {name: Total(number) for name, number in taken.totals.items()}


def _responses(groups: Sequence[Group]) -> dict[str, Metric]:
    rollouts = [r for g in groups for r in g.rollouts_G]
    metrics = _lengths(rollouts, _LENGTHS)
    metrics["tokens/generated"] = Total(sum(len(r.token_ids_T) for r in rollouts))
    entropies = [r.entropy_T[r.trainable_T] for r in rollouts if r.entropy_T is not None]
    if entropies:
        metrics["policy/entropy"] = Mean.of(np.concatenate(entropies))
    masses = [r.kept_mass_T for r in rollouts if r.kept_mass_T is not None]
    if masses:
        metrics["sampler/kept_mass_mean"] = Mean.of(np.concatenate(masses))
    return metrics


def peak_memory_megabytes() -> float:
    """Largest resident memory of this process so far, in 2^20 bytes.

    Linux' own account of it begins with the program; what getrusage gives begins with the process that started it.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


@contextmanager
def timed(clock: dict[str, Metric], name: str) -> Iterator[None]:
    """Put the seconds of the block into the clock."""
    started = time.perf_counter()
    yield
    clock[name] = Total(time.perf_counter() - started)
