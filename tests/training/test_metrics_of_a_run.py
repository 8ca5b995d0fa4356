"""What a run logs: the same however it is split, the same everywhere it is written, and what its records say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from groupwise.records.metrics_file import comparable, read_metrics
from groupwise.training import step as training_step
from groupwise.training.loop import train
from groupwise.training.setup import Run

PROMPTS = [{"prompt": p} for p in ("Say yes.", "Give one word.", "How are you?", "Hello")]
SECTIONS: dict[str, Any] = {
    "rollout": {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 8},
    "objective": {"kl": {"beta": 0.1}, "entropy_bonus": 0.01},
    "training": {"steps": 1, "learning_rate": 2e-2, "updates_per_batch": 3},
}


def first_line(run: Run) -> dict[str, float]:
    train(run)
    return read_metrics(run.folder.metrics_file)[0]


def test_metrics_are_the_same_over_one_two_and_four_micro_batches(
    tiny_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    plain = training_step.Forward.micro_batches

    def counting(self: Any, rows: Any) -> Any:
        found = plain(self, rows)
        counted.append(len(found))
        return found

    monkeypatch.setattr(training_step.Forward, "micro_batches", counting)
    lines = []
    for size, count in ((16, 1), (8, 2), (4, 4)):
        counted.clear()
        training = {**SECTIONS["training"], "micro_batch_rollouts": size}
        lines.append(comparable(first_line(tiny_run(rows=PROMPTS, **{**SECTIONS, "training": training}))))
        assert counted == [count] * 3
    whole, *split = lines
    # The case must exercise what could depend on the split: three updates whose ratios leave the clip.
    assert whole["clip/low_fraction"] + whole["clip/high_fraction"] > 0
    assert whole["ratio/max"] > 1.2
    for line in split:
        assert line.keys() == whole.keys()
        for name, value in whole.items():
            if name == "tokens/reused":  # how the work was done: in several passes nothing of sampling serves
                continue
            # Sums in float32 over another order, through three updates at a high rate.
            assert line[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name


def test_metrics_follow_from_the_rollout_file_alone(tiny_run: Callable[..., Run]) -> None:
    one_update = {**SECTIONS["training"], "updates_per_batch": 1}
    run = tiny_run(rows=PROMPTS, **{**SECTIONS, "training": one_update})
    logged = first_line(run)
    rows = pq.read_table(run.folder.rollout_file(1)).to_pylist()
    rewards = [row["reward"] for row in rows]
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    lengths = [len(row["token_ids"]) for row in rows]
    tokens = [(row, t) for row in rows for t in range(len(row["token_ids"])) if row["trainable"][t]]
    # The only update sees the policy that sampled, so that k3 = exp(d) - d - 1 with d = reference - old.
    d = [row["ref_logprob"][t] - row["old_logprob"][t] for row, t in tokens]
    k3 = [float(np.exp(each)) - each - 1 for each in d]
    found = {
        "reward/mean": sum(rewards) / len(rewards),
        "reward/std": float(np.std(rewards)),
        "reward/group_std_mean": float(np.mean([np.std([r["reward"] for r in g]) for g in groups.values()])),
        "reward/zero_spread_fraction": float(np.mean([g[0]["zero_spread"] for g in groups.values()])),
        "advantage/std": float(np.std([row["advantage"] for row in rows])),
        "length/mean": sum(lengths) / len(lengths),
        "length/truncated_fraction": float(np.mean([row["stop_reason"] == "length" for row in rows])),
        "policy/entropy": float(np.mean([row["entropy"][t] for row, t in tokens])),
        "kl/token_mean": float(np.mean(k3)),
        "kl/rollout_mean": sum(k3) / len(rows),
        "diversity/distinct_1": len({i for row in rows for i in row["token_ids"]}) / sum(lengths),
        "tokens/trained": float(len(tokens)),
    }
    for name, value in found.items():
        assert logged[name] == pytest.approx(value, rel=1e-5, abs=1e-7), name


def ones(completions: list[str], **columns: Any) -> list[float]:
    return [1.0] * len(completions)


def zeros(completions: list[str], **columns: Any) -> list[float]:
    return [0.0] * len(completions)


def half(completions: list[str], **columns: Any) -> list[float]:
    return [0.5 * (i % 2) for i in range(len(completions))]


def test_the_reward_that_is_logged_is_the_weighted_sum_that_is_trained_on(tmp_path: Path) -> None:
    # Case m03. Weights 1, 0 and 2 with values 0, 1 and 0 or 0.5: the total is 0 or 1, each part is logged unweighted.
    from groupwise.config import load
    from groupwise.training.inputs import read_inputs
    from groupwise.training.setup import assemble

    tree = {
        "model": "tiny",
        "rollout": {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 4},
        "objective": {"kl": {"beta": 0.0}},
        "training": {"steps": 1},
        "run": {"dir": str(tmp_path / "run"), "sinks": [], "save_model": False},
    }
    rewards = [(zeros, 1.0), (ones, 0.0), (half, 2.0)]
    run = assemble(read_inputs(load(tree), rewards=rewards, train=PROMPTS))
    line = first_line(run)
    rows = pq.read_table(run.folder.rollout_file(1)).to_pylist()
    totals = [sum(dict(row["terms"]).values()) for row in rows]
    assert [row["reward"] for row in rows] == totals
    assert line["reward/mean"] == pytest.approx(0.5)
    assert line["reward/std"] == pytest.approx(0.5)
    assert [line[f"reward/part/{label}/mean"] for label in ("zeros", "ones", "half")] == [0, 1, 0.25]


def test_every_sink_holds_the_same_numbers(tiny_run: Callable[..., Run]) -> None:
    # Case m05.
    run = tiny_run(rows=PROMPTS, training={"steps": 3}, run={"sinks": ["tensorboard"]})
    result = train(run)
    lines = read_metrics(run.folder.metrics_file)
    events = EventAccumulator(str(run.folder.events_dir), size_guidance={"scalars": 0})
    events.Reload()
    for line, held in zip(lines, result.metrics, strict=True):
        assert {name: line[name] for name in held} == held
        for name, value in line.items():
            if name == "step":
                continue
            [shown] = [e.value for e in events.Scalars(name) if e.step == line["step"]]
            assert shown == pytest.approx(value, rel=1e-6, abs=1e-30), name  # TensorBoard holds float32
        # A rate is of the step's own tokens and seconds.
        rate = line["tokens/generated"] / line["time/generate_seconds"]
        assert line["tokens/per_second"] == pytest.approx(rate)
