"""The critic beside the policy in a run of the tiny model."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.errors import CheckpointError, ConfigError, TrainingError
from groupwise.objective.advantages.gae import value_targets
from groupwise.training import loop
from groupwise.training.setup import Run

PPO: dict[str, Any] = {
    "objective": {"preset": "ppo", "kl": {"beta": 0.05}},
    "critic": {"learning_rate": 1e-3},
    "training": {"steps": 4, "learning_rate": 1e-3, "max_grad_norm": None},
}


def changed(section: str, **values: Any) -> dict[str, Any]:
    return {**PPO, section: {**PPO[section], **values}}


def moved(run: Run) -> None:
    """Weights that say something, so that values, targets and ratios differ from token to token."""
    assert run.critic is not None
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in run.critic.critic.parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=generator))


def gradient(run: Run, rows: Any) -> tuple[torch.Tensor, dict[str, float]]:
    assert run.critic is not None
    run.critic.optimizer.set_rate(0.0)
    metrics = run.critic.update(rows)
    grads = [p.grad.flatten() for p in run.critic.optimizer.parameters if p.grad is not None]
    return torch.cat(grads).clone(), {name: metric.value for name, metric in metrics.items()}


@pytest.mark.parametrize("backbone", ["own", "policy"])
def test_micro_batches_change_neither_gradient_nor_loss(tiny_run: Callable[..., Run], backbone: str) -> None:
    tree = changed("critic", backbone=backbone)
    run = tiny_run(**tree)
    moved(run)
    batch = loop.sample(run, 1)
    rows = run.updater.rows(batch.groups)
    with torch.no_grad():
        for p in run.critic.critic.value_head.parameters():  # type: ignore[union-attr]
            p.add_(0.15)
    whole, logged = gradient(run, rows)
    assert 0 < logged["critic/clip_fraction"] < 1, "the case must exercise the clip"
    for size in (1, 2, 5):
        training = run.critic.training.model_copy(update={"micro_batch_rollouts": size})  # type: ignore[union-attr]
        run.critic.training = training  # type: ignore[union-attr]
        split, again = gradient(run, rows)
        assert float((split - whole).norm() / whole.norm()) < 1e-5
        assert again["critic/loss"] == pytest.approx(logged["critic/loss"], rel=1e-5)
        assert again["critic/clip_fraction"] == pytest.approx(logged["critic/clip_fraction"])


def test_records_hold_values_and_targets_that_follow_from_rewards_and_kl(
    tiny_run: Callable[..., Run],
) -> None:
    run = tiny_run(**PPO)
    moved(run)
    with torch.no_grad():
        for p in run.policy.model.parameters():
            p.add_(0.02)
    batch = loop.sample(run, 1)
    seen = 0
    for entry in batch.groups:
        assert entry.values_GT is not None
        assert entry.value_targets_GT is not None
        assert entry.reference_logprobs_GT is not None
        for i, verdict in enumerate(entry.group.verdicts_G):
            kl_T = (entry.old_logprobs_GT[i] - entry.reference_logprobs_GT[i]).astype(np.float64)
            rewards_T = -0.05 * kl_T
            rewards_T[-1] += verdict.reward
            values_T = entry.values_GT[i].astype(np.float64)
            [expected] = value_targets((rewards_T,), (values_T,), gamma=1.0, lam=0.95)
            np.testing.assert_allclose(entry.value_targets_GT[i], expected, atol=1e-5)
            seen += len(expected)
    assert seen > 20
    advantages = np.concatenate([a for entry in batch.groups for a in entry.advantages_GT])
    assert advantages.mean() == pytest.approx(0, abs=1e-9)
    assert advantages.std() == pytest.approx(1, abs=1e-4)


def test_the_policy_waits_during_the_warm_up(tiny_run: Callable[..., Run]) -> None:
    run = tiny_run(**changed("critic", warmup_steps=2))
    before = [p.detach().clone() for p in run.optimizer.parameters]
    said: list[str] = []
    run.recorder._say = said.append
    for step in (1, 2, 3):
        _, metrics = loop.train_step(run, step)
        run.keeper.finished(step, metrics, run.recorder.watch)
        same = all(torch.equal(a, b) for a, b in zip(before, run.optimizer.parameters, strict=True))
        assert same == (step <= 2)
        assert ("policy/loss" in metrics) == (step > 2)
        assert metrics["critic/grad_norm"].value > 0
        assert metrics["training/updates"].value == (0 if step <= 2 else 4)
    assert not [sentence for sentence in said if "changed no weight" in sentence]


def test_a_warm_up_of_the_whole_run_is_refused(tiny_run: Callable[..., Run]) -> None:
    with pytest.raises(ConfigError, match=r"critic\.warmup_steps is 4, but the run has 4 steps"):
        tiny_run(**changed("critic", warmup_steps=4))


def test_the_critic_learns_what_there_is_to_know(tiny_run: Callable[..., Run]) -> None:
    """At learning rate 0 the policy stands still, so the critic's task does too."""
    tree = changed("training", learning_rate=0.0, steps=12)
    run = tiny_run(**{**tree, "critic": {"learning_rate": 5e-3, "clip": None}, "rollout": {"group_size": 8}})
    result = loop.train(run)
    loss, known = result.series("critic/loss"), result.series("critic/explained_variance")
    assert np.mean(loss[-4:]) < 0.7 * np.mean(loss[:2])
    assert np.mean(known[-4:]) > np.mean(known[:4])
    assert result.series("critic/memory_ratio") == pytest.approx([1.0], abs=0.01)
    assert len(result.series("critic/memory_mb")) == 1


def test_without_an_advantage_that_asks_there_is_none(tiny_run: Callable[..., Run]) -> None:
    assert tiny_run().critic is None


def test_non_finite_updates_are_skipped_and_bounded(tiny_run: Callable[..., Run]) -> None:
    run = tiny_run(**changed("training", max_bad_steps=2))
    rows = run.updater.rows(loop.sample(run, 1).groups)
    assert run.critic is not None
    assert rows[0].value_targets_T is not None
    bad = [replace(rows[0], value_targets_T=np.full_like(rows[0].value_targets_T, np.inf)), *rows[1:]]
    before = [p.detach().clone() for p in run.critic.optimizer.parameters]
    assert run.critic.update(bad)["critic/skipped_updates"].value == 1
    with pytest.raises(TrainingError, match=r"lower critic\.learning_rate"):
        run.critic.update(bad)
    assert all(torch.equal(a, b) for a, b in zip(before, run.critic.optimizer.parameters, strict=True))


def test_what_it_remembers_decides_what_it_does_next(tiny_run: Callable[..., Run]) -> None:
    run, other = tiny_run(**PPO), tiny_run(**PPO)
    assert run.critic is not None
    assert other.critic is not None
    loop.train_step(run, 1)
    other.critic.restore(copy.deepcopy(run.critic.state()))  # as a file would hold it
    rows = run.updater.rows(loop.sample(run, 2).groups)
    for each in (run, other):
        each.critic.begin(1)  # type: ignore[union-attr]
        each.critic.update(rows)  # type: ignore[union-attr]
    pairs = zip(run.critic.critic.parameters(), other.critic.critic.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert other.critic.guard.updates == run.critic.guard.updates == 5
    with pytest.raises(CheckpointError, match="the checkpoint's critic has other weights"):
        tiny_run(**changed("critic", backbone="policy")).critic.restore(run.critic.state())  # type: ignore[union-attr]
